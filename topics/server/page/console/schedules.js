// Schedules: when each is next, what it did last, what blocks it; run, paused and resumed by a button.

import { ask, getJson, onKey, why } from "./api.js";
import { $, button, clock, digits, link, make, set, show, span } from "./dom.js";

const SCHEDULES_MAX = 200;

let anew = () => {};

/** Called when the view is opened. */
export function openSchedules(refresh) {
  anew = refresh;
  set($("schedule-done"), "");
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
  : each.every_ms !== null ? `every ${span(each.every_ms)}` : `once at ${clock(each.at)}`;

const nextOf = (each) => each.paused ? "paused" : each.next_at === null ? "never" : clock(each.next_at);

function lastOf({ last_run: run }) {
  if (run === null) return make("td", "soft", "never");
  const at = run.partition ? "" : `/records/${run.seq}`;
  return make("td", "", link(`${clock(run.ts)} · ${digits(run.seq)}`, `#/topics/${run.topic}${at}`));
}

function drawList({ schedules, next_cursor: next }) {
  set($("schedules-count"), schedules.length ? digits(schedules.length) + (next === undefined ? "" : "+") : "");
  const focused = document.activeElement?.dataset?.does;
  $("schedule-list").replaceChildren(...schedules.map((each) => make(
    "tr", "",
    make("td", "", each.schedule), make("td", "", link(each.topic, "#/topics/" + each.topic)),
    make("td", "", times(each)), make("td", each.paused ? "soft" : "", nextOf(each)), lastOf(each),
    make("td", "number", digits(each.fired_total)), make("td", each.missed_total ? "number bad" : "number", digits(each.missed_total)),
    make("td", "bad", each.blocked === null ? "" : `${each.blocked.code}: ${each.blocked.message}`),
    make("td", "", doing(each, "run"), " ", doing(each, each.paused ? "resume" : "pause")),
  )));
  if (focused) document.querySelector(`#schedule-list [data-does="${CSS.escape(focused)}"]`)?.focus();
  show($("more-schedules"), next !== undefined);
  show($("no-schedule"), !schedules.length && $("schedule-prefix").value !== "");
  show($("first-schedule"), !schedules.length && $("schedule-prefix").value === "");
}

function doing({ schedule }, what) {
  const made = button(what, () => act(schedule, what));
  made.dataset.does = `${what} ${schedule}`;
  made.ariaLabel = `${what} ${schedule}`;
  return made;
}

const SAID = {
  run: (done) => `${done.schedule} ran: ${done.topic} ${digits(done.seq)}`,
  pause: (done) => `${done.schedule} is paused`,
  resume: (done) => `${done.schedule} goes on at ${clock(done.next_at)}`,
};

async function act(schedule, what) {
  try {
    const answer = await ask(`/v0/schedules/${schedule}/${what}`, { method: "POST", signal: AbortSignal.timeout(10000) });
    set($("schedule-done"), SAID[what](await answer.json()));
    anew();
  } catch (error) {
    set($("schedule-done"), "");
    told(error);
  }
}

$("schedule-prefix").oninput = () => anew();
onKey(() => $("schedule-list").replaceChildren());
set($("schedule-curl"), `curl -X PUT ${new URL("v0/schedules/hello", document.baseURI)}`
  + ` -H content-type:application/json -d '{"topic":"hello","record":{"data":1},"cron":"*/5 * * * *"}'`);
