
// The routers as a graph: what flows where, how far it has come, and what stops it.
//
// A destination has one source (§6), so the graph is trees, and rings with trees on them: a ring is
// drawn as a tree whose last leaf leads back to its root.  The nested lists are the graph for text,
// keyboard and screen reader; the wires are drawn behind them, from where the boxes have come to lie.
// Nothing here counts on that one source: a topic met twice is a leaf that names it.
//
// `$`, `make`, `set`, `ask` and their like are of the script that comes after this one.

const ROUTERS_MAX = 300, DETAILS_A_ROUND = 8;

let hasRouters = true; // until a server says that it knows no such path
let shape = "", cards = new Map(), nodes = new Map(), wires = [];

async function refreshRouters(mine) {
  if (!hasRouters) return;
  const asked = new URLSearchParams({ page_size: ROUTERS_MAX, prefix: $("router-prefix").value.trim() });
  try {
    const page = await askJson("/v0/routers?" + asked);
    if (mine !== round) return;
    $("routers-trouble").hidden = true;
    showRouters(page);
    await refreshDetails(mine);
  } catch (error) {
    if (mine !== round) return;
    hasRouters = error.status !== 404;
    const isShown = !$("trouble").hidden && $("trouble").textContent === why(error); // by the topics
    if (error.status === 401 || error.status === 404) {
      showRouters({ routers: [] });
      $("routers").hidden = true;
    } else if (!isShown) {
      set($("routers-trouble"), why(error));
      $("routers-trouble").hidden = $("routers").hidden = false;
    }
  }
}

/** What only a router's own page has, its loss above all: first of the open ones, then of those that were read longest ago. */
async function refreshDetails(mine) {
  const due = [...cards.values()].sort((a, b) => b.box.open - a.box.open || a.asked - b.asked);
  await Promise.allSettled(due.slice(0, DETAILS_A_ROUND).map(async (card) => {
    card.asked = mine;
    Object.assign(card.state, await askJson("/v0/routers/" + encodeURIComponent(card.name)));
    if (cards.get(card.name) === card) fillCard(card);
  }));
  if (mine === round) showAlarm();
}

function showRouters({ routers, next_cursor: next }) {
  const now = performance.now(), before = cards;
  cards = new Map(routers.map(({ router }) => [router, before.get(router) ?? newCard(router)]));
  for (const router of routers) {
    const card = cards.get(router.router), { forwarded_total: total } = router;
    card.rate = card.at ? (1000 * (total - card.state.forwarded_total)) / (now - card.at) : 0;
    card.at = now;
    Object.assign(card.state, router);
    fillCard(card);
  }
  const seen = routers.map(({ router, source, dest }) => `${router} ${source} ${dest}`).join("\n");
  if (seen !== shape) lay(routers);
  shape = seen;
  nodes.forEach(fillNode);
  markNodes();
  const isAll = $("router-prefix").value === "", log = [...rows.values()].find((row) => !row.jobs);
  const from = log?.tr.dataset.topic ?? "hello";
  set($("router-curl"), `curl -X PUT ${new URL(`v0/routers/${from}-copy`, document.baseURI)}`
    + ` -H content-type:application/json -d '${JSON.stringify({ source: from, dest: from + ".copy" })}'`);
  set($("routers-count"), routers.length ? digits(routers.length) + (next === undefined ? "" : "+") : "");
  $("routers").hidden = false;
  $("drawing").hidden = !routers.length;
  $("first-router").hidden = routers.length > 0 || !isAll;
  $("no-router").hidden = routers.length > 0 || isAll;
  $("router-find").hidden = isAll && !routers.length;
  $("more-routers").hidden = next === undefined;
  showAlarm();
  wire();
}

function showAlarm() {
  const states = [...cards.values()].map(({ state }) => state);
  const blocked = states.filter((state) => state.blocked).length;
  const lost = states.reduce((sum, state) => sum + (state.lost_total ?? 0), 0);
  set($("routers-alarm"), [blocked && digits(blocked) + " blocked", lost && digits(lost) + " lost"].filter(Boolean).join(" · "));
}

// ---- one router, and one topic

const PARTS = ["named", "filter", "total", "rate", "lag", "lost", "blocked"];

function newCard(name) {
  const spans = Object.fromEntries(PARTS.map((part) => [part, make("span", part)]));
  const to = make("span", "unseen"), list = make("dl", "");
  const box = make("details", "router", make("summary", "", to, ...Object.values(spans)), list);
  box.dataset.router = name;
  box.ontoggle = () => { if (box.open) refreshDetails(round); };
  return { name, box, spans, to, list, facts: new Map(), asked: 0, at: 0, rate: 0, state: {}, wires: [] };
}

const number = (n) => (Number.isFinite(n) ? digits(n) : "?");
const when = (ms) => (Number.isFinite(ms) ? clock(ms) : "?");

function filterText(filter) {
  if (!filter) return "every record";
  const [field, operator, text] = filter;
  return { Eq: `${field} is ${text}`, Glob: `${field} like ${text}` }[operator] ?? JSON.stringify(filter);
}

function fillCard(card) {
  const { name, spans, state, rate } = card, { blocked, lag, lost_total: lost, loss } = state;
  const put = (part, text) => { set(spans[part], text); spans[part].hidden = !text; };
  set(card.to, `Router ${name} to ${state.dest}:`);
  put("named", name === `${state.source}->${state.dest}` ? "" : name);
  put("filter", filterText(state.filter));
  put("total", `${number(state.forwarded_total)} forwarded`);
  put("rate", rate > 0 ? `${rate.toFixed(rate < 10 ? 1 : 0)}/s` : "");
  put("lag", lag > 0 ? `${number(lag)} behind` : "");
  put("lost", lost > 0 ? `${number(lost)} lost` : "");
  put("blocked", blocked ? `blocked since ${when(blocked.since)}: ${blocked.message}` : "");
  const keeps = [state.preserve_node && "node", state.preserve_tag && "tag"].filter(Boolean).join(" and ");
  fillFacts(card, {
    Router: name,
    Guarantee: (state.guarantee ?? "?").replaceAll("_", " "),
    Keeps: state.preserve_node === undefined ? "…" : keeps || "neither node nor tag",
    "In a ring": state.allow_cycle === undefined ? "…" : state.allow_cycle ? "allowed" : "not allowed",
    "Read through": state.cursor === undefined ? "…" : "record " + number(state.cursor),
    Behind: number(lag),
    Lost: lost === undefined ? "…" : number(lost),
    "Last loss": loss ? `records ${number(loss.gap_from)} to ${number(loss.gap_to)}, ${when(loss.ts)}: ${REASONS[loss.reason] ?? ""} (${loss.reason})` : "",
    Blocked: blocked ? `${blocked.code}; next try in ${number(blocked.retry_ms)} ms` : "",
  });
  const mood = blocked ? "stopped" : rate > 0 ? "moving" : lag > 0 ? "late" : "";
  card.box.className = "router " + mood;
  card.wires.forEach((path) => path.setAttribute("class", mood));
}

function fillFacts({ list, facts }, values) {
  for (const [label, text] of Object.entries(values)) {
    if (!facts.has(label)) {
      const pair = [make("dt", "", label), make("dd", "")];
      facts.set(label, pair);
      list.append(...pair);
    }
    const [term, fact] = facts.get(label);
    set(fact, text);
    term.hidden = fact.hidden = !text;
  }
}

function newNode(topic) {
  const facts = make("span", "facts"), button = make("button", "node", make("b", "", topic), facts);
  button.dataset.topic = topic;
  return { button, facts };
}

/** The leaf that stands for a topic which is drawn elsewhere. */
function newLeaf(topic) {
  const button = make("button", "node back", make("span", "unseen", "back to "), make("b", "", topic));
  button.dataset.topic = topic;
  return button;
}

/** Counters, of topics that are on the current page of the list. */
function fillNode({ button, facts }, topic) {
  const row = rows.get(topic);
  set(facts, !row ? "" : row.jobs
    ? [...row.jobs.counters].filter((span) => !span.hidden).map((span) => span.textContent).join(" · ")
    : count(row.records, "record"));
  facts.hidden = !row;
}

function markNodes() {
  for (const button of $("graph").querySelectorAll(".node")) button.setAttribute("aria-pressed", button.dataset.topic === tail?.topic);
}

// ---- which topic stands where

/** The trees of the graph: `{topic, branches: [{routers, topic, branches} or {routers, back}]}`. */
function trees(routers) {
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

function lay(routers) {
  const focused = document.activeElement, before = nodes;
  nodes = new Map();
  wires = [];
  cards.forEach((card) => { card.wires = []; });
  const path = (card) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", "path");
    if (card) { found.setAttribute("class", card.box.className.slice(7)); card.wires.push(found); }
    return found;
  };
  const item = (place, source) => {
    const li = make("li", "");
    const inside = (place.routers ?? []).map((name) => cards.get(name));
    if (source) li.append(make("div", "routers", ...inside.map((card) => card.box)));
    const node = place.back === undefined && (before.get(place.topic) ?? newNode(place.topic));
    if (node) nodes.set(place.topic, node);
    const button = node ? node.button : newLeaf(place.back);
    li.append(button);
    for (const card of inside) {
      wires.push({ path: path(card), from: source, to: card.box }, { path: path(card), from: card.box, to: button });
    }
    if (!node) {
      const root = nodes.get(place.back).button, home = root.closest("li");
      home.classList.add("ring");
      wires.push({ path: path(inside[0]), from: button, to: root, home });
    }
    if (place.branches?.length) {
      const list = make("ul", "");
      list.setAttribute("role", "list");
      li.append(list); // before what is below, which looks for what is above
      for (const branch of place.branches) list.append(item(branch, button));
    }
    return li;
  };
  $("graph").replaceChildren(...trees(routers).map((place) => item(place)));
  $("wires").replaceChildren(...wires.map((wire) => wire.path));
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

// ---- the wires, after the boxes

let wiring = 0;
const wire = () => { wiring ||= requestAnimationFrame(drawWires); };

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
