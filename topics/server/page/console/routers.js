// The routers as a graph: what flows where, how far it has come, and what stops it.
//
// The nested lists are the graph for text, keyboard and screen reader; the lines are drawn behind them.

import { getJson, onKey, remove, why } from "./api.js";
import { onNewRouter } from "./creation.js";
import { $, button, clock, count, digits, make, set, svg, toSecond } from "./dom.js";
import { setWires, trees, wire } from "./graph.js";
import { REASONS } from "./reading.js";
import { anyLog, known, summary } from "./topics.js";

const ROUTERS_MAX = 300, DETAILS_A_ROUND = 8;

let hasRouters = true; // until a server says that it knows no such path
let shape = "", cards = new Map(), nodes = new Map(), watched = "", round = 0, isPaused = false;

export async function refreshRouters(isCurrent = () => true) {
  if (!hasRouters || isPaused) return;
  const mine = ++round;
  const asked = new URLSearchParams({ page_size: ROUTERS_MAX, prefix: $("router-prefix").value.trim() });
  try {
    const page = await getJson("/v0/routers?" + asked);
    if (!isCurrent() || isPaused || mine !== round) return;
    $("routers-trouble").hidden = true;
    showRouters(page);
    await refreshDetails(mine);
  } catch (error) {
    if (!isCurrent() || isPaused || mine !== round) return;
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
    Object.assign(card.state, await getJson("/v0/routers/" + encodeURIComponent(card.name)));
    if (cards.get(card.name) === card) fillCard(card);
  }));
  if (mine === round) showAlarm();
}

function showRouters({ routers: all, next_cursor: next }) {
  const routers = $("only-blocked").checked ? all.filter(({ blocked }) => blocked) : all;
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
  const isAll = $("router-prefix").value === "" && !$("only-blocked").checked, from = anyLog() ?? "hello";
  set($("router-curl"), `curl -X PUT ${new URL(`v0/routers/${from}-copy`, document.baseURI)}`
    + ` -H content-type:application/json -d '${JSON.stringify({ source: from, dest: from + ".copy" })}'`);
  set($("routers-count"), routers.length ? digits(routers.length) + (next === undefined ? "" : "+") : "");
  $("routers").hidden = false;
  $("routers").classList.toggle("bare", !routers.length);
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
  const box = make("details", "router", make("summary", "", to, ...Object.values(spans)), list, removal(name));
  box.dataset.router = name;
  box.ontoggle = () => { if (box.open) refreshDetails(round); };
  return { name, box, spans, to, list, facts: new Map(), asked: 0, at: 0, rate: 0, state: {}, wires: [] };
}

/** A delete that asks first; what the router copied stays. */
function removal(name) {
  const box = make("p", "acts"), trouble = make("span", "trouble");
  trouble.setAttribute("role", "alert");
  const offer = () => {
    const made = button("Delete router", () => box.replaceChildren(sure(), button("Keep it", offer)));
    made.ariaLabel = `Delete router ${name}`;
    box.replaceChildren(made, trouble);
  };
  const sure = () => button(`Delete ${name}`, async () => {
    set(trouble, "");
    try {
      await remove(`/v0/routers/${encodeURIComponent(name)}`);
      refreshRouters();
    } catch (error) {
      set(trouble, why(error));
    }
    offer();
  }, "danger");
  offer();
  return box;
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
  const row = known(topic);
  set(facts, row ? summary(row) : "");
  facts.hidden = !row;
}

function markNodes() {
  for (const button of $("graph").querySelectorAll(".node")) button.setAttribute("aria-pressed", button.dataset.topic === watched);
}

function lay(routers) {
  const focused = document.activeElement, before = nodes;
  nodes = new Map();
  const wires = [];
  cards.forEach((card) => { card.wires = []; });
  const path = (card) => {
    const found = svg("path");
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
  setWires(wires);
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

// ---- folding, resizing, pausing

const LEAST_PX = 120;
let height = 0; // as it was dragged; 0: what the style says

function resize(px) {
  const most = $("view-topics").clientHeight - 200;
  height = Math.round(Math.min(Math.max(px, LEAST_PX), Math.max(most, LEAST_PX)));
  $("routers").style.height = height + "px";
  $("grip").setAttribute("aria-valuenow", height);
}

function fold(isFolded) {
  $("routers").classList.toggle("folded", isFolded);
  $("routers").style.height = isFolded || !height ? "" : height + "px";
  $("fold").setAttribute("aria-expanded", !isFolded);
  set($("fold"), isFolded ? "Unfold" : "Fold");
  wire();
}

$("fold").onclick = () => fold(!$("routers").classList.contains("folded"));
$("grip").onpointerdown = (event) => {
  const from = event.clientY, before = $("routers").getBoundingClientRect().height;
  $("grip").setPointerCapture(event.pointerId);
  $("grip").onpointermove = ({ clientY }) => resize(before + from - clientY);
  $("grip").onpointerup = $("grip").onlostpointercapture = () => { $("grip").onpointermove = null; };
};
$("grip").onkeydown = (event) => {
  const by = { ArrowUp: 24, ArrowDown: -24 }[event.key];
  if (!by) return;
  event.preventDefault();
  resize($("routers").getBoundingClientRect().height + by);
};
$("router-pause").onclick = () => {
  isPaused = !isPaused;
  set($("router-pause"), isPaused ? "Resume view" : "Pause view");
  set($("router-paused"), isPaused ? `as of ${toSecond(Date.now())}` : "");
  $("router-pause").setAttribute("aria-pressed", isPaused);
  if (!isPaused) refreshRouters();
};
$("only-blocked").onchange = () => refreshRouters();
$("router-prefix").oninput = () => refreshRouters();
$("routers-scroll").onscroll = wire; // some nodes stay in sight
new ResizeObserver(wire).observe($("drawing"));
$("graph").onclick = ({ target }) => {
  const topic = target.closest("[data-topic]")?.dataset.topic;
  if (topic) location.hash = `#/topics/${topic}`;
};
onNewRouter(() => refreshRouters());
onKey(() => { hasRouters = true; });

/** The topic whose page was open last is marked. */
export function markTopic(topic) {
  watched = topic;
  markNodes();
}
