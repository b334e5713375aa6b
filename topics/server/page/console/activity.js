// What happens with one topic: charts, its routers, and who is connected to it.
//
// The server keeps no figures of single topics over time, so the charts are of what this page reads while it
// shows them, a sample each round.

import { getJson, why } from "./api.js";
import { Chart } from "./chart.js";
import { askClients, ClientTable } from "./clients.js";
import { $, clock, digits, link, make, set, show, short, size } from "./dom.js";

const SAMPLES_MAX = 900, SPAN_MS = 120000, CLIENTS_MAX = 200, ROUTERS_MAX = 100;
const COLUMNS = ["", "Router", "Topic", "Forwarded", "Lag", "State"], NUMBERS = ["Forwarded", "Lag"];

const charts = [
  ["Records per second", [["appended", "a", "rate"], ["read by streams", "b", "read"]], short],
  ["Bytes", [["live", "a", "bytes"], ["on disk", "b", "disk"]], size],
  ["Lag, records", [["slowest client", "a", "lag"], ["slowest router", "b", "behind"]], short],
  ["Jobs", [["ready", "a", "ready"], ["in flight", "b", "flying"], ["delayed", "c", "delayed"]], short],
].map(([title, series, format]) => ({
  names: series.map(([, , name]) => name),
  chart: new Chart(title, series.map(([label, kind]) => ({ label, kind })), format, format === size),
}));
$("topic-charts").append(...charts.map(({ chart }) => chart.box));
const table = new ClientTable($("topic-clients"), "Nobody is connected to this topic who waits or is streamed to.");

let topic = "", samples = [], seqs = new Map(), isAllowed = true, routers = [];

/** Of another topic, or with another key, nothing is known yet. */
export function forgetActivity(name = "") {
  topic = name;
  samples = [];
  seqs = new Map();
  isAllowed = true;
  routers = [];
  $("topic-routers").replaceChildren();
  table.open(name);
  show($("activity-trouble"), false);
}

/** Take a sample: of what was just read of the topic, and of its routers and clients; then draw. */
export async function noteActivity({ head, bytes, disk, queue, isQueue }, isCurrent) {
  const name = topic, at = Date.now(), before = samples.at(-1), s = before ? (at - before.at) / 1000 : 0;
  const found = {
    at, head, bytes, disk, rate: s > 0 ? Math.max(head - before.head, 0) / s : 0, read: 0, lag: 0,
    ready: Number(queue?.ready ?? 0), flying: Number(queue?.in_flight ?? 0), delayed: Number(queue?.delayed ?? 0),
  };
  const isMine = () => isCurrent() && name === topic;
  await Promise.all([readRouters(name, isMine), readClients(name, found, s, isMine), table.refresh(isMine)]);
  if (!isMine()) return;
  found.behind = Math.max(0, ...routers.filter(({ source }) => source === name).map(({ lag }) => lag));
  samples = [...samples.slice(1 - SAMPLES_MAX), found];
  draw(at, isQueue);
}

async function readRouters(name, isMine) {
  try {
    const pages = await Promise.all(["source", "dest"].map((end) => getJson("/v0/routers?" + new URLSearchParams({ [end]: name, page_size: ROUTERS_MAX }))));
    if (!isMine()) return;
    routers = pages.flatMap((page) => page.routers);
    show($("activity-trouble"), false);
    drawRouters(name, pages.some((page) => page.next_cursor !== undefined));
  } catch (error) {
    if (!isMine()) return;
    set($("activity-trouble"), why(error));
    show($("activity-trouble"), true);
  }
}

/** How far the first clients are: what they were sent since the last round, and the slowest of them. */
async function readClients(name, found, s, isMine) {
  if (!isAllowed) return;
  try {
    const { clients } = await askClients(name, "", CLIENTS_MAX);
    if (!isMine()) return;
    const places = new Map(clients.flatMap(({ client, topics }) => topics.map(({ partition, seq }) => [`${client} ${partition ?? 0}`, seq ?? 0])));
    const sent = [...places].reduce((sum, [each, seq]) => sum + Math.max(seq - (seqs.get(each) ?? seq), 0), 0);
    found.read = s > 0 ? sent / s : 0;
    found.lag = Math.max(0, ...clients.map(({ lag }) => lag ?? 0));
    seqs = places;
  } catch (error) {
    if (isMine() && (error.status === 403 || error.status === 401)) isAllowed = false; // the table says why
  }
}

function draw(now, isQueue) {
  const drawn = samples.slice(1), times = drawn.map(({ at }) => at), from = Math.min(...times, now - SPAN_MS); // a rate takes two
  charts.forEach(({ chart, names }, i) => {
    show(chart.box, i < 3 || isQueue);
    chart.update(times, names.map((name) => drawn.map((each) => each[name])), from, now);
  });
}

function drawRouters(name, isCut) {
  const cell = (label, inside, kind = "") => {
    const made = make("td", [kind, NUMBERS.includes(label) && "number"].filter(Boolean).join(" "), inside);
    made.dataset.label = label;
    return made;
  };
  $("topic-routers").replaceChildren(...routers.map((each) => {
    const isOut = each.source === name, other = isOut ? each.dest : each.source, { blocked } = each;
    const state = blocked ? `blocked since ${clock(blocked.since)}: ${blocked.message}` : each.lag ? "copies" : "caught up";
    return make("tr", "", cell("", isOut ? "out to" : "in from"), cell("Router", each.router), cell("Topic", link(other, "#/topics/" + other)),
      cell("Forwarded", digits(each.forwarded_total)), cell("Lag", digits(each.lag), each.lag ? "late" : ""), cell("State", state, blocked ? "bad wide" : "wide"));
  }));
  show($("topic-routers-table"), routers.length > 0);
  show($("no-topic-router"), !routers.length);
  show($("more-topic-routers"), isCut);
}

$("topic-router-heads").append(...COLUMNS.map((label) => make("th", NUMBERS.includes(label) ? "number" : "", label)));
