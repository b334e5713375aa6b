// A schedule as a form: made anew, or changed (§14.1).  The record is JSON as it stands, so a change keeps every
// field and every digit of it.

import { ask, getJson, sendText, why } from "./api.js";
import { $, fieldOf, momentOf, set, show, toSecond, ZONE } from "./dom.js";
import { fields, isJson, parse, textOf } from "./json.js";

const KINDS = ["cron", "every_ms", "at"], PARTS = ["topic", "record", "config", ...KINDS, "tz", "missed", "until"];
const field = (name) => $("schedule-" + name.replaceAll("_", "-"));

let before = null; // {name, text, isPaused} of the schedule that is changed; null: a new one
let done = () => {};

/** Called with what was done, in words, when a schedule is saved. */
export const onSaved = (call) => { done = call; };

export const isEditing = () => !$("schedule-form").hidden;

/** Show the form. @param name of the schedule to change; undefined: a new one */
export async function editSchedule(name) {
  set($("schedule-form-trouble"), "");
  before = name === undefined ? null : await current(name);
  fill(before);
  show($("schedule-form"), true);
  show($("schedules-box"), false);
  (before ? field("topic") : field("name")).focus();
}

export function closeForm() {
  before = null;
  show($("schedule-form"), false);
  show($("schedules-box"), true);
}

async function current(name) {
  const answer = await ask(`/v0/schedules/${name}`, { signal: AbortSignal.timeout(10000) });
  const state = fields(parse(await answer.text()));
  const parts = Object.fromEntries(PARTS.map((each) => [each, textOf(state[each])]));
  return { name, parts, text: JSON.stringify(parts), isPaused: state.paused === "true" };
}

const plain = (text) => (text === undefined || text === "null" ? null : JSON.parse(text));

function fill(state) {
  const parts = state?.parts ?? {}, value = (name) => plain(parts[name]);
  field("name").value = state?.name ?? "";
  field("name").readOnly = state !== null;
  field("topic").value = value("topic") ?? "";
  field("record").value = parts.record ?? '{"data": {}}';
  field("kind").value = KINDS.find((each) => value(each) !== null) ?? "cron";
  field("cron").value = value("cron") ?? "";
  field("tz").value = value("tz") ?? ZONE;
  field("every_ms").value = value("every_ms") ?? "";
  field("at").value = fieldOf(value("at"));
  field("until").value = fieldOf(value("until"));
  field("missed").value = value("missed") ?? "one";
  field("config").value = value("config") === null ? "" : parts.config;
  showKind();
}

function showKind() {
  for (const each of KINDS) show(field(each).parentElement, each === field("kind").value);
  show(field("tz").parentElement, field("kind").value === "cron");
}

/** The time of a field; where it was not touched, to the millisecond as it was. */
function moment(name) {
  const was = plain(before?.parts[name]), input = field(name);
  return was !== null && momentOf(input) === was - (was % 1000) ? was : momentOf(input);
}

function body() {
  const kind = field("kind").value, record = field("record").value.trim(), config = field("config").value.trim();
  if (!isJson(record) || !record.startsWith("{")) throw new Error("The record is not a JSON object.");
  if (config && !(isJson(config) && config.startsWith("{"))) throw new Error("The configuration is not a JSON object.");
  const text = field(kind).value.trim();
  if (!text) throw new Error("When? The time is missing.");
  const value = kind === "at" ? moment("at") : kind === "every_ms" && /^\d+$/.test(text) ? Number(text) : text;
  const parts = {
    topic: JSON.stringify(field("topic").value.trim()), record, [kind]: JSON.stringify(value), missed: JSON.stringify(field("missed").value),
    ...(kind === "cron" && { tz: JSON.stringify(field("tz").value.trim()) }), ...(field("until").value && { until: String(moment("until")) }),
    ...(config && { config }), ...(before?.isPaused && { paused: "true" }),
  };
  return `{${Object.entries(parts).map(([name, part]) => `"${name}":${part}`).join(",")}}`;
}

/** Raises where the schedule is not as it was when the form was opened. */
async function requireUnchanged() {
  if (!before) return;
  const now = await current(before.name);
  if (now.text === before.text) { before.isPaused = now.isPaused; return; }
  before = now;
  fill(now);
  throw new Error("It was changed by another meanwhile. The form has what is in force now.");
}

/** A new name that is taken is not changed unseen. */
async function requireNew(name) {
  const { schedules } = await getJson("/v0/schedules?" + new URLSearchParams({ prefix: name, page_size: 1 }));
  if (schedules[0]?.schedule === name) throw new Error(`There is a schedule ${name} already.`);
}

$("schedule-form").onsubmit = async (event) => {
  event.preventDefault();
  set($("schedule-form-trouble"), "");
  $("schedule-save").disabled = true;
  try {
    const name = field("name").value.trim();
    body(); // what is wrong in the form comes before the server is asked
    if (before) await requireUnchanged();
    else await requireNew(name);
    const state = JSON.parse(await sendText("PUT", `/v0/schedules/${encodeURIComponent(name)}`, body()));
    closeForm();
    done(`${name} is saved; ${state.next_at === null ? "it has no next tick" : `its next tick is at ${toSecond(state.next_at)}`}`);
  } catch (error) {
    set($("schedule-form-trouble"), why(error));
  } finally {
    $("schedule-save").disabled = false;
  }
};
$("schedule-cancel").onclick = closeForm;
field("kind").onchange = showKind;
