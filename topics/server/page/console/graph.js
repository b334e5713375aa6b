// The graph of routers: which topic stands where, and the lines between the boxes.
//
// A destination has one source (§6), so the graph is trees, and rings with trees on them: a ring is a
// tree whose last leaf leads back to its root.  Nothing here counts on that one source: a topic met
// twice is a leaf that names it.  Lines are drawn behind the boxes, from where these have come to lie.

import { $ } from "./dom.js";

/** The trees of the graph: `{topic, branches: [{routers, topic, branches} or {routers, back}]}`. */
export function trees(routers) {
  const flows = new Map(), sources = new Map(), seen = new Set();
  for (const { router, source, dest } of routers) {
    const into = flows.get(source) ?? new Map();
    flows.set(source, into.set(dest, [...(into.get(dest) ?? []), router]));
    sources.set(dest, source);
  }
  // What is on a ring comes last, so that the way back runs below everything and crosses nothing.
  const tree = (topic, ring) => {
    seen.add(topic);
    const into = [...(flows.get(topic) ?? [])].sort(([a], [b]) => ring.has(a) - ring.has(b) || (a < b ? -1 : 1));
    const branches = into.map(([dest, routers]) => ({ routers, ...(seen.has(dest) ? { back: dest } : tree(dest, ring)) }));
    return { topic, branches };
  };
  const ringAbove = (topic) => {
    const walked = [];
    for (; !walked.includes(topic); topic = sources.get(topic)) walked.push(topic);
    return walked.slice(walked.indexOf(topic)).sort();
  };
  const topics = [...flows.keys()].sort(), found = [];
  for (const topic of topics) if (!sources.has(topic)) found.push(tree(topic, new Set()));
  for (const topic of topics) {
    if (seen.has(topic)) continue;
    const ring = ringAbove(topic);
    found.push(tree(ring[0], new Set(ring)));
  }
  return found;
}

let wiring = 0, wires = []; // {path, from, to, home}

/** Lines from now on: `{path, from, to}` between boxes, with `home` for the way back of a ring. */
export function setWires(next) {
  wires = next;
  $("wires").replaceChildren(...wires.map(({ path }) => path));
}

/** Draw them in the next frame. */
export const wire = () => { wiring ||= requestAnimationFrame(drawWires); };

function drawWires() {
  wiring = 0;
  const origin = $("wires").getBoundingClientRect();
  const boxes = new Map();
  const box = (node) => {
    if (!boxes.has(node)) {
      const { left, right, top, bottom } = node.getBoundingClientRect();
      const x = left - origin.left, y = top - origin.top;
      boxes.set(node, { left: x, right: right - origin.left, top: y, bottom: bottom - origin.top, middle: (y + bottom - origin.top) / 2 });
    }
    return boxes.get(node);
  };
  const drawn = wires.map(({ from, to, home }) => (home ? ringPath(box(from), box(to), box(home)) : wirePath(box(from), box(to), to)));
  wires.forEach(({ path }, i) => path.setAttribute("d", drawn[i]));
}

const ARROW = { right: "l-6 -4m6 4l-6 4", down: "l-4 -6m4 6l4 -6", up: "l-4 6m4 -6l4 6" };

function wirePath(from, to, node) {
  const arrow = (way) => (node.matches(".node") ? ARROW[way] : "");
  if (to.left >= from.right) {
    const half = (from.right + to.left) / 2;
    return `M${from.right} ${from.middle}C${half} ${from.middle} ${half} ${to.middle} ${to.left} ${to.middle}${arrow("right")}`;
  }
  const x = Math.round(from.left) + 14.5; // one above the other, where there is little room
  return to.left > x ? `M${x} ${from.bottom}V${to.middle}H${to.left}${arrow("right")}` : `M${x} ${from.bottom}V${to.top}${arrow("down")}`;
}

const NARROW = matchMedia("(max-width: 620px)");

/** From the last leaf back to the root: below the tree, or left of it where it grows downwards. */
function ringPath(from, to, home) {
  const y = home.bottom - 8, x = (box) => (box.left + box.right) / 2;
  if (!NARROW.matches) {
    return `M${x(from)} ${from.bottom}V${y - 8}q0 8 -8 8H${x(to) + 8}q-8 0 -8 -8V${to.bottom}${ARROW.up}`;
  }
  const gutter = home.left + 4;
  return `M${from.left} ${from.middle}H${gutter + 8}q-8 0 -8 -8V${to.middle + 8}q0 -8 8 -8H${to.left}${ARROW.right}`;
}
