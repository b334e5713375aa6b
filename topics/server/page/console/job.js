// One job: what is known of it, its history, its data; its end is awaited (§10.9).

import { ask, getJson, why } from "./api.js";
import { $, button, clock, copy, digits, link, make, set, show, sleep, span } from "./dom.js";
import { Acts } from "./job_acts.js";
import { fields, laidOut, parse } from "./json.js";
import { read } from "./reading.js";

const WAIT_MS = 25000, PAUSE_MS = 2000;

let view = null; // {topic, seq, control, acts, record} of the job on show

export function openJob(topic, seq) {
  if (view?.topic === topic && view.seq === seq) return;
  forgetJob();
  view = { topic, seq, control: new AbortController(), record: undefined };
  view.acts = new Acts(topic, (text) => { set($("job-done"), text); refreshJob(); });
  $("job-acts").replaceChildren(view.acts.box);
  for (const each of ["job-facts", "job-history", "job-data"]) $(each).replaceChildren();
  for (const each of ["job-done", "job-state", "job-trouble"]) set($(each), "");
  show($("job-trouble"), false);
  set($("job-title"), `Job ${digits(seq)}`);
  $("to-jobs").href = `#/topics/${topic}/jobs`;
  waitForEnd(view);
}

/** Nothing is awaited any more. */
export function forgetJob() {
  view?.control.abort();
  view = null;
}

const path = ({ topic, seq }) => `/v0/topics/${topic}/jobs/${seq}`;

async function load(about, waitMs, signal) {
  const text = await (await ask(`${path(about)}${waitMs ? `?wait_ms=${waitMs}` : ""}`, { signal })).text();
  return { job: JSON.parse(text), raw: fields(parse(text)) };
}

export async function refreshJob() {
  const about = view;
  if (!about) return;
  try {
    const found = await load(about, 0, AbortSignal.any([about.control.signal, AbortSignal.timeout(10000)]));
    if (about !== view) return;
    await lookAtData(about, found.job);
    if (about === view) draw(found);
  } catch (error) {
    if (about === view) told(error);
  }
}

/** The end of a job is shown at once, and not in the next round. */
async function waitForEnd(about) {
  await refreshJob();
  while (about === view && about.isWaiting) {
    try {
      const found = await load(about, WAIT_MS, about.control.signal);
      if (about === view) draw(found);
    } catch {
      if (about !== view) return;
      await sleep(PAUSE_MS);
      await refreshJob();
    }
  }
}

function told(error) {
  if (error.status === 404 && error.code === "job_not_found") {
    view.isWaiting = false;
    set($("job-state"), "gone");
    view.acts.update({ state: "gone", seq: view.seq });
  }
  set($("job-trouble"), error.code === "job_not_found"
    ? "No such job is in the queue, and nothing is kept of one: it was done, cancelled or deleted, or was never there." : why(error));
  show($("job-trouble"), true);
}

/** The record of a job that is in its queue, or its letter: it never changes, so it is read once. */
async function lookAtData(about, { state, dead_letter: letter }) {
  const place = state === "dead" ? letter && `${letter.topic} ${letter.seq}` : state !== "done" && `${about.topic} ${about.seq}`;
  if (about.place === place) return;
  about.place = place;
  const [topic, seq] = place ? place.split(" ") : [];
  if (!place) return;
  const page = await read(topic, { from_seq: Number(seq) - 1, limit: 1, include_tags: true }).catch(() => null);
  about.record = page?.items.find((item) => item.seq === Number(seq)) ?? about.record;
}

const dated = (ms) => `${new Date(ms).toISOString()}`;

function draw({ job, raw }) {
  const { state, group, priority, deliveries, ready_at: ready, node, deadline, dead_letter: letter, ended_at: ended } = job;
  view.isWaiting = state !== "done" && state !== "dead";
  show($("job-trouble"), false);
  set($("job-state"), state);
  view.acts.update(job);
  const facts = [
    ["State", state], ["Group", group], ["Priority", digits(priority)], ["Deliveries", digits(deliveries)],
    [state === "leased" ? "Held by" : "Last worker", node],
    ["Lease", deadline && `${deadline > Date.now() ? `${span(deadline - Date.now())} left` : "over"}, until ${clock(deadline)}`],
    ["Not before", ready && `${clock(ready)}${ready > Date.now() ? `, in ${span(ready - Date.now())}` : ""}`],
    ["Tag", view.record?.tag], ["Written by", view.record?.node],
  ];
  const list = facts.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [make("dt", "", name), make("dd", "", String(value))]);
  if (letter) list.push(make("dt", "", "Dead letter"), make("dd", "", link(`${letter.topic} ${digits(letter.seq)}`, `#/topics/${letter.topic}/records/${letter.seq}`)));
  $("job-facts").replaceChildren(...list);
  drawHistory(job, ended);
  drawData(raw);
}

function drawHistory({ state, reasons, node, deadline, dead_letter: letter }, ended) {
  const events = reasons.map((each) => [each.time, `given back by ${each.node}: ${each.reason}`]);
  if (view.record && !letter) events.unshift([view.record.ts, "appended"]);
  if (state === "leased") events.push([null, `held by ${node} until ${clock(deadline)}`]);
  if (ended !== undefined) events.push([ended, state === "done" ? `done by ${node ?? "a worker"}` : "dead"]);
  $("job-history").replaceChildren(...events.map(([at, text]) =>
    make("li", "", make("time", "", at === null ? "now" : dated(at)), " ", make("span", "", text))));
  show($("job-history-title"), events.length > 0);
}

function drawData({ progress, result }) {
  const parts = [["Progress", progress], ["Result", result], ["Data", view.record?.data], ["Meta", view.record?.meta]];
  const shown = parts.filter(([, value]) => value !== undefined && value !== "null");
  const key = JSON.stringify(shown.map(([name, value]) => [name, value.text ?? value]));
  if ($("job-data").dataset.key === key && $("job-data").children.length) return; // an opened part stays open
  $("job-data").dataset.key = key;
  $("job-data").replaceChildren(...shown.flatMap(([name, value]) => [
    make("div", "bar plain", make("h3", "", name), button("Copy", (event) => copy(value.text ?? value, event.currentTarget))), laidOut(value),
  ]));
  if (!view.record) $("job-data").append(make("p", "soft", "Its data is not in the queue any more."));
}
