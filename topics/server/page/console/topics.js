// The list of topics: pages of the server's list, of which only the rows in sight are in the document.
//
// By name the pages are loaded as they are scrolled to, and those in sight are asked for again each round.  A
// search inside of names looks at a thousand at a time, until there is a screenful.  Any other order needs all
// topics: they are loaded a thousand at a time, and shown as of then.

import { getJson, why } from "./api.js";
import { $, count, digits, link, make, set, short, show, size, toSecond, visible } from "./dom.js";

const PAGE_SIZE = 200, ALL_SIZE = 1000, ALL_SHOWN_EACH = 10000, ALL_AGAIN_MS = 30000, ROW_PX = 29, SPARE_ROWS = 10, TOPICS_MAX = 100000;

const COLUMNS = [
  { key: "topic", label: "Topic", value: (t) => t.topic },
  { key: "class", label: "Class", value: (t) => (t.type === "queue" ? "queue, " : "") + t.durability },
  { key: "head_seq", label: "Head", isNumber: true, value: (t) => t.head_seq },
  { key: "earliest_seq", label: "Earliest", isNumber: true, value: (t) => t.earliest_seq },
  { key: "count", label: "Records", isNumber: true, value: (t) => t.count },
  { key: "bytes", label: "Bytes", isNumber: true, value: (t) => t.bytes, text: size },
  { key: "rate", label: "New/s", isNumber: true, value: (t) => t.rate ?? 0, text: (n) => (n ? short(n) : "") },
  { key: "ready", label: "Ready", isNumber: true, value: (t) => t.queue?.ready ?? -1, text: (n) => (n < 0 ? "" : digits(n)) },
  { key: "in_flight", label: "In flight", isNumber: true, value: (t) => t.queue?.in_flight ?? -1, text: (n) => (n < 0 ? "" : digits(n)) },
  { key: "dead", label: "Dead", isNumber: true, value: (t) => t.queue?.dead_lettered ?? -1, text: (n) => (n < 0 ? "" : digits(n)) },
];

let pages = [newPage("")]; // {cursor, topics, next}; the last one may not be loaded
let all = null; // {topics, at, isDone} where an order needs every topic
let sort = { key: "topic", isDown: false }, generation = 0, loading = null;
const heads = new Map(); // of topics in sight, for their rates: {head, at, rate}

function newPage(cursor) { return { cursor, topics: [], next: undefined, isLoaded: false }; }

const text = () => $("search").value.trim();
const needsAll = () => sort.key !== "topic" || sort.isDown;
const inside = () => (text().startsWith("*") ? text().slice(1).toLowerCase() : "");
const prefix = () => (text().startsWith("*") ? "" : text());

/** What is listed, in order. */
function listed() {
  return all ? all.shown : pages.flatMap((page) => page.topics);
}

let run; // one at a time: a second one would ask for the same pages

export function refreshTopics(isCurrent = () => true) {
  if (run?.of !== generation) {
    const mine = run = { of: generation };
    mine.done = refreshed(isCurrent).finally(() => { if (run === mine) run = undefined; });
  }
  return run.done;
}

async function refreshed(isCurrent) {
  const mine = generation;
  try {
    if (needsAll()) await refreshAll(mine, isCurrent);
    else await refreshPages(mine, isCurrent);
    if (!isCurrent() || mine !== generation) return;
    show($("trouble"), false);
    draw();
  } catch (error) {
    if (!isCurrent() || mine !== generation) return;
    set($("trouble"), why(error));
    show($("trouble"), true);
    if (error.status === 401) forgetTopics();
    draw();
  }
}

async function load(page, size = inside() ? ALL_SIZE : PAGE_SIZE) {
  const asked = new URLSearchParams({ page_size: size, prefix: prefix() });
  if (page.cursor) asked.set("cursor", page.cursor);
  const found = await getJson("/v0/topics?" + asked);
  return { topics: found.topics, next: found.next_cursor, count: found.topics.length, at: Date.now() };
}

async function refreshPages(mine, isCurrent) {
  all = null;
  const [first, last] = inSight(), part = inside();
  let row = 0;
  for (let i = 0; i < pages.length; i++) {
    const page = pages[i], end = row + (page.isLoaded ? page.topics.length : PAGE_SIZE);
    if (!page.isLoaded ? row > last + SPARE_ROWS : end < first || row > last) { row = end; continue; }
    if (part && page.isLoaded && Date.now() - page.at < ALL_AGAIN_MS) { row = end; continue; }
    const found = await load(page);
    if (mine !== generation || !isCurrent()) return;
    found.topics = found.topics.filter(({ topic }) => topic.toLowerCase().includes(part));
    for (const topic of found.topics) rate(topic);
    // A topic that came or went moves the pages behind it: they are loaded anew when they are scrolled to.
    if (found.next !== page.next) pages = [...pages.slice(0, i + 1), ...(found.next === undefined ? [] : [newPage(found.next)])];
    Object.assign(page, found, { isLoaded: true });
    row += page.topics.length;
    if (part) draw(); // it may be a long way to the next one
  }
}

async function refreshAll(mine, isCurrent) {
  if (all?.of === prefix() && all.isDone && (all.topics.length > ALL_SIZE && Date.now() - all.at < ALL_AGAIN_MS)) { arrange(); return; }
  const fresh = { of: prefix(), topics: [], shown: [], at: Date.now(), isDone: false };
  const page = newPage("");
  do {
    const found = await load(page, ALL_SIZE);
    if (mine !== generation || !isCurrent()) return;
    for (const topic of found.topics) rate(topic);
    fresh.topics.push(...found.topics);
    page.cursor = found.next;
    // Meanwhile a part of them is shown, now and then: a sort of all of them is not free.
    const isDue = fresh.topics.length <= ALL_SIZE || fresh.topics.length % ALL_SHOWN_EACH === 0;
    if (page.cursor === undefined || (isDue && !all?.isDone)) { all = fresh; arrange(); draw(); }
  } while (page.cursor !== undefined && fresh.topics.length < TOPICS_MAX);
  fresh.isDone = true;
  all = fresh;
}

function arrange() {
  const { value } = COLUMNS.find(({ key }) => key === sort.key), part = inside(), way = sort.isDown ? -1 : 1;
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  all.shown = all.topics.filter(({ topic }) => topic.toLowerCase().includes(part))
    .sort((a, b) => way * order(value(a), value(b)) || order(a.topic, b.topic));
}

function rate(topic) {
  const now = performance.now(), before = heads.get(topic.topic);
  topic.rate = before && now > before.at ? Math.max((1000 * (topic.head_seq - before.head)) / (now - before.at), 0) : 0;
  if (heads.size > 5000) heads.clear();
  heads.set(topic.topic, { head: topic.head_seq, at: now });
}

// ---- rows in sight

const inSight = () => {
  const box = $("topics-scroll"), first = Math.floor(box.scrollTop / ROW_PX);
  return [first, first + Math.ceil((box.clientHeight || 600) / ROW_PX)];
};

const drawn = new Map();

function draw() {
  const topics = listed(), [first, last] = inSight();
  const from = Math.max(first - SPARE_ROWS, 0), to = Math.min(last + SPARE_ROWS, topics.length), body = $("topics");
  const shown = topics.slice(from, to), names = new Set(shown.map(({ topic }) => topic));
  for (const [name, row] of drawn) if (!names.has(name)) { row.remove(); drawn.delete(name); }
  shown.forEach((topic, place) => {
    const row = drawn.get(topic.topic) ?? newRow(topic.topic);
    drawn.set(topic.topic, row);
    COLUMNS.slice(1).forEach((column, i) => {
      const value = column.value(topic);
      set(row.cells[i + 1], column.text ? column.text(value) : column.isNumber ? digits(value) : value);
    });
    row.style.gridRow = "";
    if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
  });
  $("above").style.height = from * ROW_PX + "px";
  $("below").style.height = Math.max(topics.length - to, 0) * ROW_PX + "px";
  body.parentNode.setAttribute("aria-rowcount", topics.length);
  const isMore = all ? !all.isDone : pages.some((page) => !page.isLoaded);
  const isLoading = !all && !pages[0].isLoaded;
  const asOf = all?.isDone && all.topics.length > ALL_SIZE ? `, as of ${toSecond(all.at)}` : "";
  const seen = !all && inside() ? ` of ${digits(pages.reduce((sum, page) => sum + (page.count ?? 0), 0))}` : "";
  set($("count"), isLoading ? "" : digits(topics.length) + seen + (isMore ? (all ? ", loading" : "+") : "") + asOf);
  const isEmpty = !topics.length && $("trouble").hidden && !isLoading && !(all ? !all.isDone : isMore);
  show($("none"), isEmpty);
  show($("nothing"), text() !== "");
  show($("first"), text() === "");
}

function newRow(name) {
  const cells = COLUMNS.slice(1).map(({ key, isNumber }) => make("td", key + (isNumber ? " number" : "")));
  const row = make("tr", "", make("td", "topic", link(name, `#/topics/${name}`)), ...cells);
  row.firstChild.title = visible(name);
  row.dataset.topic = name;
  return row;
}

/** More pages, when the rows in sight come near the end of what is loaded. */
async function scrolled() {
  draw();
  if (loading || all) return;
  const loaded = listed().length, last = pages.at(-1);
  if (last.isLoaded || inSight()[1] + SPARE_ROWS < loaded) return;
  loading = refreshTopics();
  await loading;
  loading = null;
}

function newHead({ key, label, isNumber }) {
  const pick = make("button", "", label);
  pick.type = "button";
  pick.onclick = () => {
    sort = { key, isDown: sort.key === key ? !sort.isDown : Boolean(isNumber) };
    anew();
  };
  const head = make("th", key + (isNumber ? " number" : ""), pick);
  head.scope = "col";
  head.dataset.key = key;
  return head;
}

function markSort() {
  for (const head of $("topic-heads").children) {
    const isSorted = head.dataset.key === sort.key;
    if (isSorted) head.setAttribute("aria-sort", sort.isDown ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

function anew() {
  markSort();
  $("topics-scroll").scrollTop = 0;
  if (needsAll() && all?.of === prefix()) { // they are here, or on their way
    arrange();
    draw();
    return;
  }
  generation++;
  all = null;
  pages = [newPage("")];
  refreshTopics();
}

/** What was listed may not be seen any more, as with another key. */
export function forgetTopics() {
  generation++;
  all = null;
  pages = [newPage("")];
  heads.clear();
}

/** Of topics that were listed: what the graph of routers says below their names. */
export const known = (topic) => listed().find((each) => each.topic === topic);
export const anyLog = () => listed().find((each) => each.type !== "queue")?.topic;

$("topic-heads").append(...COLUMNS.map(newHead));
markSort();
$("search").oninput = anew;
$("search").onkeydown = (event) => {
  if (event.key === "Escape" && text()) { $("search").value = ""; anew(); event.preventDefault(); }
  if (event.key === "ArrowDown") { $("topics").querySelector("a")?.focus(); event.preventDefault(); }
};
$("topics-scroll").onscroll = scrolled;
$("topics").onclick = ({ target }) => { if (!target.closest("a")) target.closest("tr")?.querySelector("a").click(); };
$("topics").addEventListener("keydown", (event) => {
  const row = event.target.closest("tr");
  const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
  if (!to) return;
  event.preventDefault();
  to.querySelector("a").focus();
});
new ResizeObserver(scrolled).observe($("topics-scroll"));
set($("curl"), `curl ${new URL("v0/topics/hello", document.baseURI)} -H content-type:application/json -d '{"records":[{"data":"world"}]}'`);
export const summary = (topic) => (topic.queue
  ? `${digits(topic.queue.ready)} ready · ${digits(topic.queue.in_flight)} in flight`
  : count(topic.count, "record"));
