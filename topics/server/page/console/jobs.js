// The jobs of a queue by state, a page at a time, and what may be done with each (§10.9).
//
// A page looks at a bounded number of jobs, so it may be short before the last one: a few are asked for until
// there is something to show.  What took several is not asked for again by itself.

import { getJson, why } from "./api.js";
import { $, clock, count, digits, link, make, set, show, span, toSecond, visible } from "./dom.js";
import { Acts, openMany } from "./job_acts.js";
import { forgetJob, openJob, refreshJob } from "./job.js";
import { forgetLetters, openLetters, refreshLetters } from "./letters.js";

const PAGE = 50, REQUESTS_MAX = 20, OFTEN = 2;
const STATES = [["", "Waiting"], ["ready", "Ready"], ["delayed", "Delayed"], ["leased", "Leased"], ["done", "Done"], ["dead", "Dead"]];
const ENDED = ["done", "dead"];
const NONE = {
  "": "No job is in the queue.", ready: "No job is ready.", delayed: "No job is delayed.", leased: "No worker holds a job.",
  done: "Nothing is kept of a job that is done. A worker keeps a result with its ack; the configuration's keep_done keeps a trace of every job.",
  dead: "Nothing is kept of a dead job. The configuration's keep_done keeps a trace of every job that ends.",
};

let view = null; // {topic, queue, letters, state, group, afters, page} of what is on show
let turn = 0; // what an older request brings is dropped
const rows = new Map();

/** Show a queue's jobs, or one of them. @param known {queue: counters, letters: the dead-letter topic or null} */
export function openJobs(topic, known, seq) {
  if (view?.topic !== topic) {
    view = { topic, state: "", group: "", afters: [0], page: null };
    $("job-group").value = $("job-seq").value = "";
    set($("jobs-done"), "");
    openMany(topic, refreshJobs);
  }
  noteQueue(known);
  view.seq = seq;
  show($("jobs-list"), seq === undefined);
  show($("job"), seq !== undefined);
  if (seq === undefined) {
    forgetJob();
    choose(view.state, false);
  } else openJob(topic, seq);
}

export function forgetJobs() {
  view = null;
  turn++;
  rows.clear();
  $("jobs").replaceChildren();
  forgetJob();
  forgetLetters();
}

/** The queue's counters moved. */
export function noteQueue({ queue, letters }) {
  Object.assign(view, { queue, letters });
  drawStates();
}

export const leaveJobs = () => forgetJob();

/** What is on show is asked for again, where that is cheap. */
export function refreshJobs() {
  if (!view) return undefined;
  if (view.seq !== undefined) return refreshJob();
  if (view.state === "letters") return refreshLetters();
  return !view.page || view.page.requests <= OFTEN ? load() : undefined;
}

// ---- states

function counted(state) {
  const { ready = 0, in_flight = 0, delayed = 0 } = view.queue ?? {};
  const found = { "": Number(ready) + Number(in_flight) + Number(delayed), ready, leased: in_flight, delayed }[state];
  return found === undefined ? "" : ` ${digits(found)}`;
}

function drawStates() {
  const wanted = [...STATES, ...(view.letters ? [["letters", "Dead letters"]] : [])], box = $("job-states");
  if (box.children.length !== wanted.length) {
    box.replaceChildren(...wanted.map(([state]) => {
      const pick = make("button");
      pick.type = "button";
      pick.dataset.state = state;
      pick.onclick = () => choose(state, true);
      return pick;
    }));
  }
  wanted.forEach(([state, label], i) => {
    set(box.children[i], label + counted(state));
    box.children[i].setAttribute("aria-pressed", state === view.state);
  });
}

function choose(state, isAnew) {
  if (isAnew || !view.page) Object.assign(view, { state, afters: [0], page: null });
  const areLetters = state === "letters";
  drawStates();
  for (const each of ["jobs-scroll", "jobs-pages", "job-find", "jobs-range"]) show($(each), !areLetters);
  show($("job-many"), !areLetters && !ENDED.includes(state));
  show($("letters"), areLetters);
  if (isAnew) set($("jobs-done"), "");
  if (areLetters) return openLetters(view.topic, view.letters);
  if (isAnew) clear();
  return load();
}

function clear() {
  rows.clear();
  $("jobs").replaceChildren();
  show($("no-jobs"), false);
  set($("jobs-range"), "");
}

// ---- a page

async function pageFrom(after) {
  const { topic, state, group } = view, jobs = [];
  let at = after, requests = 0;
  do {
    const asked = new URLSearchParams({ after: at, limit: PAGE - jobs.length });
    if (state) asked.set("state", state);
    if (group) asked.set("group", group);
    const answer = await getJson(`/v0/topics/${topic}/jobs?${asked}`);
    jobs.push(...answer.jobs);
    at = answer.next_after;
  } while (at !== null && jobs.length < PAGE && ++requests < REQUESTS_MAX);
  return { jobs, next: at, requests: requests + 1, at: Date.now() };
}

async function load() {
  const mine = ++turn, about = view;
  $("jobs").setAttribute("aria-busy", "true");
  try {
    const page = await pageFrom(about.afters.at(-1));
    if (mine !== turn) return;
    about.page = page;
    show($("jobs-trouble"), false);
    draw(page);
  } catch (error) {
    if (mine !== turn) return;
    set($("jobs-trouble"), why(error));
    show($("jobs-trouble"), true);
  } finally {
    if (mine === turn) $("jobs").removeAttribute("aria-busy");
  }
}

function draw({ jobs, next, requests, at }) {
  const known = new Set(jobs.map(({ seq }) => seq));
  for (const [seq, row] of rows) if (!known.has(seq)) { row.box.remove(); rows.delete(seq); }
  jobs.forEach((job, place) => {
    const row = rows.get(job.seq) ?? new Row(job.seq);
    rows.set(job.seq, row);
    row.fill(job);
    if ($("jobs").children[place] !== row.box) $("jobs").insertBefore(row.box, $("jobs").children[place] ?? null);
  });
  show($("no-jobs"), !jobs.length);
  set($("no-jobs"), next !== null ? "None so far: go on for more." : view.group ? "No job of this group." : NONE[view.state]);
  const asOf = requests > OFTEN ? `, as of ${toSecond(at)}` : "";
  set($("jobs-range"), `${count(jobs.length, "job")}${next === null ? "" : " and more"}${asOf}`);
  $("jobs-first").disabled = view.afters.length === 1;
  $("jobs-back").disabled = view.afters.length === 1;
  $("jobs-next").disabled = next === null;
}

/** When something happens to a job, in words; the exact time is the title. */
export function timeOf(job, now = Date.now()) {
  const { state, deadline, ready_at: ready, ended_at: ended } = job;
  if (state === "leased") return [deadline > now ? `${span(deadline - now)} left` : "lease is over", deadline];
  if (state === "delayed") return [ready > now ? `ready in ${span(ready - now)}` : "ready now", ready];
  if (ended !== undefined) return [`ended ${toSecond(ended)}`, ended];
  return ["", null];
}

/** A value of a worker's in a few words. */
const brief = (value) => (value === null || value === undefined ? "" : JSON.stringify(value).slice(0, 200));

function notes({ progress, reasons, result, dead_letter: letter }) {
  const found = [];
  if (progress !== null) found.push(make("span", "note-part", `at ${brief(progress)}`));
  if (reasons.length) found.push(make("span", "note-part warn", reasons.at(-1).reason));
  if (result !== null) found.push(make("span", "note-part", `gave ${brief(result)}`));
  if (letter) found.push(link(`letter ${digits(letter.seq)}`, `#/topics/${letter.topic}/records/${letter.seq}`, "note-part"));
  return found;
}

const LABELS = ["Job", "State", "When", "Group", "Priority", "Deliveries", "Worker", "Said", "Do"];
const NUMBERS = ["Priority", "Deliveries"];

class Row {
  constructor(seq) {
    this.cells = LABELS.map((label) => {
      const cell = make("td", (NUMBERS.includes(label) ? "number " : "") + label.toLowerCase());
      cell.dataset.label = label;
      return cell;
    });
    this.box = make("tr", "", ...this.cells);
    this.box.dataset.seq = seq;
    this.cells[0].append(link(digits(seq), `#/topics/${view.topic}/jobs/${seq}`));
    this.acts = new Acts(view.topic, (text) => { set($("jobs-done"), text); refreshJobs(); });
    this.cells[8].append(this.acts.box);
  }

  fill(job) {
    const [when, at] = timeOf(job);
    const texts = [null, job.state, when, job.group ?? "", job.priority || "", job.deliveries || "", job.node ?? ""];
    texts.forEach((text, i) => { if (text !== null) set(this.cells[i], typeof text === "number" ? digits(text) : text); });
    this.cells[2].title = at === null ? "" : visible(clock(at));
    const said = notes(job), text = said.map((each) => each.textContent).join("\n");
    if (this.said !== text) {
      this.said = text;
      this.cells[7].replaceChildren(...said);
    }
    this.acts.update(job);
    this.cells.forEach((cell) => cell.classList.toggle("void", !cell.textContent));
  }
}

$("jobs-heads").append(...LABELS.map((label) => {
  const head = make("th", NUMBERS.includes(label) ? "number" : "", label);
  head.scope = "col";
  return head;
}));
$("jobs-first").onclick = () => { view.afters = [0]; load(); };
$("jobs-back").onclick = () => { view.afters.pop(); load(); };
$("jobs-next").onclick = () => { view.afters.push(view.page.next); $("jobs-scroll").scrollTop = 0; load(); };
$("job-find").onsubmit = (event) => {
  event.preventDefault();
  view.group = $("job-group").value.trim();
  view.afters = [0];
  clear();
  load();
};
$("job-seek").onsubmit = (event) => {
  event.preventDefault();
  location.hash = `#/topics/${view.topic}/jobs/${$("job-seq").valueAsNumber}`;
};
