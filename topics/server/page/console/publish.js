// The publish box: one record, as it is typed.

import { curl, sendJson, why } from "./api.js";
import { $, copy, digits, link, make, set } from "./dom.js";
import { isJson } from "./json.js";

let topic = "";

const OF_JOBS = ["delay_ms", "priority", "group", "unique", "expires_ms"];
const TEXTS = ["group", "unique"];
const input = (name) => $("publish-" + name.replace("_", "-"));

export function openPublish(name, isQueue) {
  for (const each of OF_JOBS) input(each).parentElement.hidden = !isQueue;
  if (topic === name) return;
  topic = name;
  $("published").replaceChildren();
  set($("publish-trouble"), "");
}

/** The body as text: data and meta go out byte for byte. */
function body() {
  const typed = $("publish-data").value, isText = $("publish-as").value === "text";
  const parts = [`"data":${isText ? JSON.stringify(typed) : typed}`];
  for (const name of ["tag", "node"]) {
    const value = $("publish-" + name).value;
    if (value) parts.push(`${JSON.stringify(name)}:${JSON.stringify(value)}`);
  }
  for (const name of OF_JOBS) {
    const value = input(name).value.trim(), isNumber = !TEXTS.includes(name) && /^-?\d+$/.test(value);
    if (value && !input(name).parentElement.hidden) parts.push(`"${name}":${isNumber ? value : JSON.stringify(value)}`);
  }
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
$("publish-data").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("publish").requestSubmit();
};
