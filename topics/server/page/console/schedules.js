// Schedules: when each is next, what it did last, what blocks it; run, paused, resumed, changed and deleted by buttons.

import { ask, getJson, onKey, remove, why } from "./api.js";
import { $, button, digits, link, make, set, show, span, toSecond } from "./dom.js";
import { closeForm, editSchedule, onSaved } from "./schedule_form.js";

const SCHEDULES_MAX = 200;
const LABELS = ["Schedule", "Topic", "Ticks", "Next", "Last", "Appended", "Missed", "Blocked by", "Do"];
const NUMBERS = ["Appended", "Missed"];

let anew = () => {};
let asked = ""; // the schedule of which a delete is to be confirmed

/** Called when the view is opened. */
export function openSchedules(refresh) {
  anew = refresh;
  set($("schedule-done"), "");
  asked = "";
  closeForm();
}

export async function refreshSchedules(isCurrent) {
  const asked = new URLSearchParams({ page_size: SCHEDULES_MAX, prefix: $("schedule-prefix").value });
  const [list] = await Promise.allSettled([getJson("/v0/schedules?" + asked)]);
  if (!isCurrent()) return;
  told(list.reason);
  if (list.value) drawList(list.value);
}

function told(error) {
  set($("schedules-trouble"), error ? why(error) : "");
  show($("schedules-trouble"), error !== undefined);
}

const times = (each) => each.cron !== null ? `${each.cron} ${each.tz}`
  : each.every_ms !== null ? `every ${span(each.every_ms)}` : `once at ${toSecond(each.at)}`;

const nextOf = (each) => each.paused ? "paused" : each.next_at === null ? "never" : toSecond(each.next_at);

function lastOf({ last_run: run }) {
  if (run === null) return make("td", "soft", "never");
  const at = run.partition ? "" : `/records/${run.seq}`;
  return make("td", "", link(`${toSecond(run.ts)} · ${digits(run.seq)}`, `#/topics/${run.topic}${at}`));
}

function drawList({ schedules, next_cursor: next }) {
  set($("schedules-count"), schedules.length ? digits(schedules.length) + (next === undefined ? "" : "+") : "");
  const focused = document.activeElement?.dataset?.does;
  $("schedule-list").replaceChildren(...schedules.map((each) => row([
    make("td", "", each.schedule), make("td", "", link(each.topic, "#/topics/" + each.topic)),
    make("td", "", times(each)), make("td", each.paused ? "soft" : "", nextOf(each)), lastOf(each),
    make("td", "number", digits(each.fired_total)), make("td", each.missed_total ? "number bad" : "number", digits(each.missed_total)),
    make("td", "blocked bad", each.blocked === null ? "" : `${each.blocked.code}: ${each.blocked.message}`),
    make("td", "do", asked === each.schedule ? asking(each) : acts(each)),
  ])));
  if (focused) document.querySelector(`#schedule-list [data-does="${CSS.escape(focused)}"]`)?.focus();
  show($("more-schedules"), next !== undefined);
  show($("no-schedule"), !schedules.length && $("schedule-prefix").value !== "");
  show($("first-schedule"), !schedules.length && $("schedule-prefix").value === "");
}

function row(cells) {
  cells.forEach((cell, i) => {
    cell.dataset.label = LABELS[i];
    cell.classList.toggle("void", !cell.textContent);
  });
  return make("tr", "", ...cells);
}

const acts = (each) => make("span", "acts", ...["run", each.paused ? "resume" : "pause", "edit", "delete"].map((what) => doing(each, what)));

function asking({ schedule }) {
  const sure = button(`delete ${schedule}`, () => { asked = ""; return act(schedule, "drop"); }, "sure");
  const keep = button("keep it", () => { asked = ""; anew(); });
  sure.dataset.does = `drop ${schedule}`;
  keep.dataset.does = `keep ${schedule}`;
  return make("span", "acts", sure, keep);
}

function doing({ schedule }, what) {
  const made = button(what, () => {
    if (what === "edit") return edit(schedule);
    if (what !== "delete") return act(schedule, what);
    asked = schedule;
    return anew();
  });
  made.dataset.does = `${what} ${schedule}`;
  made.ariaLabel = `${what} ${schedule}`;
  return made;
}

const SAID = {
  run: (done) => `${done.schedule} ran: ${done.topic} ${digits(done.seq)}`,
  pause: (done) => `${done.schedule} is paused`,
  drop: (done) => `${done.schedule} is deleted`,
  resume: (done) => `${done.schedule} goes on at ${toSecond(done.next_at)}`,
};

const request = async (schedule, what) => what === "drop" ? remove(`/v0/schedules/${schedule}`)
  : (await ask(`/v0/schedules/${schedule}/${what}`, { method: "POST", signal: AbortSignal.timeout(10000) })).json();

async function edit(schedule) {
  try {
    await editSchedule(schedule);
  } catch (error) {
    told(error);
  }
}

async function act(schedule, what) {
  try {
    set($("schedule-done"), SAID[what](await request(schedule, what)));
    anew();
  } catch (error) {
    set($("schedule-done"), "");
    told(error);
  }
}

$("schedule-heads").append(...LABELS.map((label) => {
  const head = make("th", NUMBERS.includes(label) ? "number" : "", label);
  head.scope = "col";
  return head;
}));
$("schedule-new").onclick = () => edit();
onSaved((text) => {
  set($("schedule-done"), text);
  anew();
});
$("schedule-prefix").oninput = () => anew();
onKey(() => $("schedule-list").replaceChildren());
set($("schedule-curl"), `curl -X PUT ${new URL("v0/schedules/hello", document.baseURI)}`
  + ` -H content-type:application/json -d '{"topic":"hello","record":{"data":1},"cron":"*/5 * * * *"}'`);
