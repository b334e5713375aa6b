// The publish box: one record, as it is typed.

import { curl, sendJson, why } from "./api.js";
import { $, copy, digits, link, make, momentOf, set, show } from "./dom.js";
import { isJson } from "./json.js";

let topic = "";

const OF_JOBS = ["delay_ms", "priority", "group", "expires_ms"];
const SHOWN = [...OF_JOBS, "not_before", "unique", "on_conflict", "for_ms"];
const OF_KEY = ["on_conflict", "for_ms"];
const input = (name) => $("publish-" + name.replaceAll("_", "-"));

let isOfQueue = false;

export function openPublish(name, isQueue) {
  isOfQueue = isQueue;
  for (const each of SHOWN) input(each).parentElement.hidden = !isQueue;
  showKey();
  if (topic === name) return;
  topic = name;
  $("published").replaceChildren();
  set($("publish-trouble"), "");
}

/** What a unique key does is asked where there is one. */
function showKey() {
  for (const each of OF_KEY) show(input(each).parentElement, isOfQueue && input("unique").value !== "");
}

const number = (text) => (/^-?\d+$/.test(text) ? text : JSON.stringify(text)); // the server says what is wrong with another

/** Fields of a job. */
function jobParts() {
  const parts = [];
  for (const name of OF_JOBS) {
    const value = input(name).value.trim();
    if (value) parts.push(`"${name}":${name === "group" ? JSON.stringify(value) : number(value)}`);
  }
  const at = momentOf(input("not_before")), key = input("unique").value, held = input("for_ms").value.trim();
  if (at !== null) parts.push(`"not_before":${at}`);
  if (!key) return parts;
  const isReplaced = input("on_conflict").value === "replace", shown = JSON.stringify(key);
  const more = [isReplaced && '"on_conflict":"replace"', held && `"for_ms":${number(held)}`].filter(Boolean);
  return [...parts, `"unique":${more.length ? `{"key":${[shown, ...more].join(",")}}` : shown}`];
}

/** The body as text: data and meta go out byte for byte. */
function body() {
  const typed = $("publish-data").value, isText = $("publish-as").value === "text";
  const parts = [`"data":${isText ? JSON.stringify(typed) : typed}`];
  for (const name of ["tag", "node"]) {
    const value = $("publish-" + name).value;
    if (value) parts.push(`${JSON.stringify(name)}:${JSON.stringify(value)}`);
  }
  if (isOfQueue) parts.push(...jobParts());
  const meta = $("publish-meta").value.trim();
  if (meta) parts.push(`"meta":${meta}`);
  return `{"records":[{${parts.join(",")}}],"create":false}`;
}

function trouble() {
  if ($("publish-as").value !== "text" && !isJson($("publish-data").value)) return "The data is not JSON. Send it as text, or mend it.";
  const meta = $("publish-meta").value.trim();
  if (meta && !(isJson(meta) && meta.startsWith("{"))) return "The meta is not a JSON object.";
  return "";
}

$("publish").onsubmit = async (event) => {
  event.preventDefault();
  const found = trouble();
  set($("publish-trouble"), found);
  if (found) return;
  $("publish-send").disabled = true;
  try {
    const sent = topic, answer = await sendJson("POST", `/v0/topics/${sent}`, body());
    const seq = answer.first_seq;
    const done = answer.unique ? " was there already." : answer.replaced ? ` written, in place of ${digits(answer.replaced[0])}.` : " written.";
    $("published").prepend(make("li", "", "Record ", link(digits(seq), `#/topics/${sent}/records/${seq}`), done));
    while ($("published").children.length > 10) $("published").lastChild.remove();
  } catch (error) {
    set($("publish-trouble"), why(error));
  } finally {
    $("publish-send").disabled = false;
  }
};
$("publish-curl").onclick = (event) => {
  const found = trouble();
  set($("publish-trouble"), found);
  if (!found) copy(curl("POST", `/v0/topics/${topic}`, body()), event.currentTarget);
};
input("unique").oninput = showKey;
$("publish-data").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("publish").requestSubmit();
};
