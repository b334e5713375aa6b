// The overview: what the server holds now, and the last hour as charts (§8.6).

import { ask, getJson, why } from "./api.js";
import { Chart } from "./chart.js";
import { $, count, digits, link, make, set, short, show, size } from "./dom.js";

const HOUR_MS = 3600000, SHORT_MS = 600000, LEAST_MS = 120000, QUEUES_DRAWN = 20;
const STILL = ["records_in_per_s", "log_bytes_per_s", "requests_per_s", "reads_per_s", "p99_ms"];

const ms = (n) => `${short(n)} ms`;
const charts = [
  ["Records in per second", [["appended", "a", "records_in_per_s"]], short],
  ["Requests per second", [["all", "a", "requests_per_s"], ["reads", "b", "reads_per_s"]], short],
  ["Log bytes per second", [["written", "a", "log_bytes_per_s"]], size],
  ["Time to answer", [["p99", "a", "p99_ms"], ["loop lag", "b", "loop_lag_ms"]], ms],
  ["Router lag", [["most behind", "a", "router_lag"], ["blocked", "d", "routers_blocked"]], short],
  ["Memory", [["process", "a", "resident_bytes"], ["unsealed", "b", "hot_bytes"]], size],
].map(([title, series, format]) => ({
  names: series.map(([, , name]) => name),
  chart: new Chart(title, series.map(([label, kind]) => ({ label, kind })), format, format === size),
}));
const queueChart = new Chart("Jobs", [["ready", "a"], ["in flight", "b"], ["delayed", "c"], ["dead-lettered", "d"]]
  .map(([label, kind]) => ({ label, kind })), short);
$("charts").append(...charts.map(({ chart }) => chart.box));
$("queue-chart").append(queueChart.box);

let stepMs = 10000, rows = {}, queues = new Map(), chosen = "", nowMs = 0;

function chooseStep(step) {
  stepMs = step;
  forgetOverview();
  for (const [id, of] of [["hour", 10000], ["minutes", 1000]]) $(id).setAttribute("aria-pressed", of === step);
}
$("hour").onclick = () => { chooseStep(10000); refreshOverview(); };
$("minutes").onclick = () => { chooseStep(1000); refreshOverview(); };

const spanMs = () => (stepMs === 1000 ? SHORT_MS : HOUR_MS);

/** Add what came since: the columns of the answer behind those that are there. */
function grow(before, more, from) {
  const at = [...(before.at_ms ?? []), ...more.at_ms], first = at.findIndex((time) => time >= from);
  const keep = first < 0 ? at.length : first;
  return Object.fromEntries(Object.keys(more).map((name) => [name, [...(before[name] ?? []), ...more[name]].slice(keep)]));
}

/** The rows after a time. */
function since(columns, at) {
  const first = columns.at_ms.findIndex((time) => time > at), from = first < 0 ? columns.at_ms.length : first;
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column.slice(from)]));
}

/** Where nothing was asked for a while there are no rows: rates were 0, and all else stood still. */
function filled(columns, stepMs, toMs) {
  const found = Object.fromEntries(Object.keys(columns).map((name) => [name, []]));
  const put = (at, n, isStill) => {
    for (const name of Object.keys(columns)) found[name].push(name === "at_ms" ? at : isStill && STILL.includes(name) ? 0 : columns[name][n]);
  };
  const times = columns.at_ms;
  times.forEach((at, n) => {
    put(at, n, false);
    const next = times[n + 1] ?? toMs;
    if (next - at < 3 * stepMs) return;
    put(at + stepMs, n, true);
    put(next - (n + 1 < times.length ? stepMs : 0), n, true);
  });
  return found;
}

export async function refreshOverview(isCurrent = () => true) {
  const step = stepMs, after = rows.at_ms?.at(-1) ?? 0;
  try {
    const from = after || Math.max((nowMs || Date.now()) - spanMs(), 0);
    const [history, metrics] = await Promise.all([
      getJson(`/v0/stats/history?step_ms=${step}&after_ms=${Math.floor(from)}`),
      getMetrics(),
    ]);
    if (!isCurrent() || step !== stepMs) return;
    nowMs = history.now_ms;
    rows = grow(rows, history.series, nowMs - spanMs());
    for (const queue of history.queues) {
      const { topic, ...columns } = queue;
      const before = queues.get(topic) ?? {};
      queues.set(topic, grow(before, since(columns, before.at_ms?.at(-1) ?? 0), nowMs - HOUR_MS));
    }
    draw();
    fillTiles(metrics);
    showFigures(true);
    show($("overview-trouble"), false);
  } catch (error) {
    if (!isCurrent()) return;
    if (error.status === 401 || error.status === 403) showFigures(false);
    set($("overview-trouble"), why(error));
    show($("overview-trouble"), true);
  }
}

/** Figures that may not be seen are not shown as none. */
function showFigures(isShown) {
  for (const each of ["tiles", "activity", "charts"]) show($(each), isShown);
  if (!isShown) show($("queues"), false);
}

async function getMetrics() {
  return (await ask("/v0/metrics", { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10000) })).json();
}

function draw() {
  // The axis of a server that began lately begins with it.
  const first = rows.at_ms[0] ?? nowMs, from = Math.max(nowMs - spanMs(), Math.min(first, nowMs - LEAST_MS));
  const columns = filled(rows, stepMs, nowMs);
  const column = (name) => columns[name] ?? columns.at_ms.map(() => 0); // an older server has fewer
  for (const { chart, names } of charts) chart.update(columns.at_ms, names.map(column), from, nowMs);
  drawQueues(from);
}

function drawQueues(from) {
  const names = [...queues.keys()].sort().slice(0, QUEUES_DRAWN);
  show($("queues"), names.length > 0);
  if (!names.includes(chosen)) chosen = names[0] ?? "";
  const list = $("queue-list"), known = new Map([...list.children].map((row) => [row.dataset.topic, row]));
  for (const name of names) {
    const row = known.get(name) ?? newQueueRow(name);
    known.delete(name);
    const columns = queues.get(name), last = (column) => columns[column].at(-1) ?? 0;
    ["ready", "in_flight", "delayed", "dead_lettered"].forEach((column, i) => set(row.cells[i + 1], digits(last(column))));
    row.classList.toggle("chosen", name === chosen);
    row.querySelector("button").setAttribute("aria-pressed", name === chosen);
    list.append(row);
  }
  known.forEach((row) => row.remove());
  if (!chosen) return;
  const columns = filled(queues.get(chosen), 10000, nowMs);
  set(queueChart.box.querySelector(".title"), `Jobs of ${chosen}`);
  queueChart.update(columns.at_ms, ["ready", "in_flight", "delayed", "dead_lettered"].map((name) => columns[name]), from, nowMs);
}

function newQueueRow(name) {
  const pick = make("button", "pick", name);
  pick.type = "button";
  pick.onclick = () => { chosen = name; draw(); };
  const row = make("tr", "", make("td", "", pick), ...["ready", "in-flight", "delayed", "dead"].map((kind) => make("td", "number " + kind)));
  row.dataset.topic = name;
  return row;
}

function sum(value) {
  return Array.isArray(value) ? value.reduce((total, each) => total + each.value, 0) : value ?? 0;
}

function fillTiles(metrics) {
  const value = (name) => sum(metrics[name]);
  const blocked = value("topics_router_blocked");
  const tiles = [
    ["Topics", digits(value("topics_topics")), count(value("topics_queue_topics"), "queue"), "#/topics"],
    ["Records", digits(value("topics_records_live")), size(value("topics_bytes_live"))],
    ["Ready jobs", digits(value("topics_topic_queue_ready")), `${digits(value("topics_queue_leases_in_flight"))} in flight`],
    ["Routers", digits(value("topics_routers")), blocked ? `${digits(blocked)} blocked` : "none blocked", "#/topics"],
    ["Open streams", digits(value("topics_sse_connections")), count(value("topics_connections"), "connection")],
    ["Segments", digits(value("topics_segments")), `${short(100 * value("topics_pressure"))} % pressure`],
  ];
  const box = $("tiles");
  tiles.forEach(([label, big, small, hash], i) => {
    let tile = box.children[i];
    if (!tile) {
      tile = make("div", "tile", make("span", "label"), make("b"), make("span", "small"));
      tile.firstChild.append(hash ? link(label, hash) : label);
      box.append(tile);
    }
    set(tile.children[1], big);
    set(tile.children[2], small);
    tile.classList.toggle("bad", label === "Routers" && blocked > 0);
  });
}

/** With another key other figures may be seen. */
export function forgetOverview() { rows = {}; queues = new Map(); }
