// The message browser: rows of one line that open, pages in both directions, a link to each record.

import { curl, why } from "./api.js";
import { $, button, clock, copy, count, digits, link, make, roves, set, show, size } from "./dom.js";
import { laidOut, preview, textOf } from "./json.js";
import { deletedText, lossText, newer, ofPartition, older } from "./reading.js";
import { search } from "./search.js";

const PREVIEW_CHARS = 300;

let view = null; // {topic, isQueue, first, last, head, …} of the page on show
let turn = 0; // what an older request brings is dropped

const filter = () => ({ tag: $("tag").value.trim(), node: $("node").value.trim() });

/** Show a topic's newest records, or the page that begins with a record. */
export function openRecords(topic, state, seq) {
  if (view?.topic === topic && (seq === undefined || view.wanted === seq)) return;
  $("tag").value = $("node").value = $("find-text").value = "";
  view = { topic, isQueue: state.isQueue, head: state.head, first: 0, last: 0 };
  if (seq === undefined) go(() => older(topic, state.head + 1, filter()));
  else find(seq);
}

export function forgetRecords() {
  view = null;
  turn++;
  endSearch();
}

/** A topic's counters moved: the page stays, what follows it can be asked for. */
export function noteHead(topic, head) {
  if (view?.topic !== topic || view.isBusy) return;
  view.head = Math.max(head, view.head);
  fillPager();
}

async function go(load, then = () => {}) {
  const mine = ++turn, about = view;
  endSearch();
  about.isBusy = true;
  $("records").setAttribute("aria-busy", "true");
  try {
    const page = await load();
    if (mine !== turn) return;
    Object.assign(about, page, { wanted: undefined, said: undefined, found: undefined });
    show($("records-trouble"), false);
    draw(page.items);
    then(page);
  } catch (error) {
    if (mine !== turn) return;
    set($("records-trouble"), why(error));
    show($("records-trouble"), true);
  } finally {
    if (mine === turn) {
      about.isBusy = false;
      $("records").removeAttribute("aria-busy");
      fillPager();
    }
  }
}

/** The page that begins with a record; where there is no such record, why. */
function find(seq) {
  const { topic, isQueue } = view, every = { tag: "", node: "" };
  const load = async () => {
    const page = await newer(topic, { from_seq: Math.max(seq - 1, 0) }, every);
    // A cursor beyond the head is told that the topic was made anew (§3.3); the link is only early.
    return seq > page.head ? older(topic, page.head + 1, every) : page;
  };
  return go(load, (page) => {
    view.wanted = seq;
    const row = $("records").querySelector(`[data-seq="${seq}"]`);
    if (row) {
      row.classList.add("wanted");
      toggle(row, true);
      row.querySelector("button").focus({ preventScroll: true });
      return;
    }
    const gap = page.items.find((item) => item.from <= seq && seq <= item.to);
    const text = seq > page.head ? `Record ${digits(seq)} is not written yet: the last one is ${digits(page.head)}.`
      : gap?.reason ? lossText(gap.from, gap.to, gap.reason)
      : deletedText(seq, seq, isQueue);
    $("records").prepend(make("p", "note wanted-note", text));
  });
}

function draw(items) {
  const rows = items.map((item) => (item.seq ? recordRow(item) : gapRow(item)));
  const first = rows.find((row) => row.dataset.seq)?.querySelector("button");
  if (first) first.tabIndex = 0;
  view.items = items;
  $("records").replaceChildren(...($("newest-first").checked ? rows.reverse() : rows));
  const isDated = items.some(({ seq, ts }) => seq && clock(ts).includes(" "));
  for (const each of ["records", "record-heads"]) $(each).classList.toggle("dated", isDated);
  show($("record-heads"), items.length > 0);
  show($("no-records"), !items.length);
  const { tag, node } = filter();
  set($("no-records"), tag || node ? "No record here matches." : "No records.");
  $("records-scroll").scrollTop = 0;
}

function gapRow({ from, to, reason }) {
  if (reason) return make("p", "note tombstone", lossText(from, to, reason));
  return make("p", "note gap", deletedText(from, to, view.isQueue));
}

function recordRow(record) {
  const { seq, ts, tag, node, data } = record;
  const line = make("button", "line", make("span", "seq", digits(seq)), make("time", "", clock(ts)),
    make("span", "tag", tag ?? ""), make("span", "by", node ?? ""), make("span", "data", preview(data, PREVIEW_CHARS)));
  line.type = "button";
  line.tabIndex = -1;
  line.setAttribute("aria-expanded", "false");
  const row = make("div", "record", line);
  row.dataset.seq = seq;
  row.record = record;
  line.onclick = () => toggle(row);
  return row;
}

function toggle(row, isOpen = !row.classList.contains("open")) {
  row.classList.toggle("open", isOpen);
  row.firstChild.setAttribute("aria-expanded", isOpen);
  if (!isOpen) row.querySelector(".detail")?.remove();
  else if (!row.querySelector(".detail")) row.append(detail(row.record));
}

function detail({ seq, ts, tag, node, data, meta, text }) {
  const { topic } = view, path = `/v0/topics/${topic}/diff`;
  const facts = make("dl", "facts");
  const put = (name, value) => { if (value !== null) facts.append(make("dt", "", name), make("dd", "", value)); };
  put("Seq", digits(seq));
  put("Time", `${new Date(ts).toISOString()} (${ts})`);
  put("Tag", tag);
  put("Node", node);
  put("Size", size(new TextEncoder().encode(textOf(data)).length) + " of data");
  const body = JSON.stringify({ from_seq: seq - 1, limit: 1, include_tags: true, ...ofPartition() });
  const actions = make("div", "actions",
    button("Copy record", (event) => copy(text, event.currentTarget)),
    button("Copy data", (event) => copy(textOf(data), event.currentTarget)),
    button("Copy as curl", (event) => copy(curl("POST", path, body), event.currentTarget), "copy-curl"),
    link("Permalink", `#/topics/${topic}/records/${seq}`, "permalink"));
  const found = make("div", "detail", facts, laidOut(data));
  if (meta) found.append(laidOut(meta, "meta "));
  found.append(actions);
  return found;
}

function fillPager() {
  if (!view) return;
  const { first, last, head, earliest = 1, isCut } = view;
  const shown = $("records").querySelectorAll(".record").length;
  const where = shown ? ` of ${digits(first + 1)} to ${digits(last)}` : "";
  set($("range"), view.said ?? `${count(shown, "record")}${where}, head ${digits(head)}${isCut ? "; looked at a part, go on for more" : ""}`);
  $("oldest").disabled = $("older").disabled = first < earliest;
  $("newer").disabled = last >= head;
  $("newest").disabled = last >= head && !view.wanted;
}

// ---- search in data

let searching = null; // {isStopped} of the search that runs

async function look(typed, before) {
  const about = view, mine = ++turn, run = { isStopped: false };
  const isStopped = () => run.isStopped || mine !== turn;
  searching = run;
  about.isBusy = true;
  set($("find-go"), "Stop");
  show($("records-trouble"), false);
  const onProgress = (looked, found, at) => {
    if (mine === turn) set($("range"), `Looked at ${count(looked, "record")}, down to ${digits(at + 1)}; ${digits(found)} found`);
  };
  try {
    const found = await search(about.topic, { before, typed, tag: filter().tag, isStopped, onProgress });
    if (mine !== turn) return;
    about.found = { typed, ...found };
    showFound(about.found);
    set($("records-trouble"), found.error ? why(found.error) : "");
    show($("records-trouble"), Boolean(found.error));
  } finally {
    if (mine === turn) about.isBusy = false;
    if (searching === run) endSearch();
  }
}

function endSearch() {
  searching = null;
  set($("find-go"), "Find");
}

function showFound({ typed, items, next }) {
  draw(items);
  set($("no-records"), "No record here matches.");
  view.said = `${count(items.length, "record")} found${next ? `; all from ${digits(next)} on were looked at` : "; all were looked at"}`;
  set($("range"), view.said);
  if (!next) return;
  const more = button("Search on", () => look(typed, next), "search-on");
  $("records").append(make("p", "note", more));
}

$("find").onsubmit = (event) => {
  event.preventDefault();
  if (searching) { searching.isStopped = true; return; }
  const typed = $("find-text").value.trim();
  if (typed) look(typed, view.head + 1);
  else go(() => older(view.topic, view.head + 1, filter()));
};
$("newest-first").onchange = () => {
  if (view?.found) showFound(view.found);
  else if (view?.items) draw(view.items);
};
$("oldest").onclick = () => go(() => newer(view.topic, { from_seq: 0 }, filter()));
$("older").onclick = () => go(() => older(view.topic, view.first + 1, filter()));
$("newer").onclick = () => go(() => newer(view.topic, { from_seq: view.last }, filter()));
$("newest").onclick = () => go(async () => {
  const end = await newer(view.topic, { from_seq: Math.max(view.head - 1, 0) }, { tag: "", node: "" });
  return older(view.topic, end.head + 1, filter());
});
$("to-seq").onsubmit = (event) => {
  event.preventDefault();
  const seq = $("seq").valueAsNumber;
  if (location.hash === `#/topics/${view.topic}/records/${seq}`) find(seq);
  else location.hash = `#/topics/${view.topic}/records/${seq}`;
};
$("to-time").onsubmit = (event) => {
  event.preventDefault();
  const at = new Date($("time").value).getTime();
  if (Number.isFinite(at)) go(() => newer(view.topic, { from_ts: at }, filter()));
};
$("filter").onsubmit = (event) => {
  event.preventDefault();
  go(() => older(view.topic, view.head + 1, filter()));
};
$("records").addEventListener("keydown", (event) => {
  const row = event.target.closest(".record");
  if (event.key !== "Escape" || !row?.classList.contains("open")) return;
  toggle(row, false);
  row.firstChild.focus();
});
roves($("records"), ".record > .line");
