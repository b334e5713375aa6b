// The lines between the boxes of the graph, drawn behind them from where they have come to lie.

import { $ } from "./dom.js";

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
