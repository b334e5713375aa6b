// Many jobs at once: those of some tags are counted first, by a dry run, and changed when that is confirmed (§10.9).
//
// One call changes a bounded number of jobs, so it is repeated until none is left that matched; it may be stopped.

import { sendJson, why } from "./api.js";
import { $, count, digits, set, show } from "./dom.js";

const WORDS = { promote: "promoted", retry: "retried", cancel: "cancelled" };

let topic = "", changed = () => {}, plan = null, isRunning = false, isStopped = false;

export function openMany(name, onChange) {
  topic = name;
  changed = onChange;
  isStopped = true;
  forget();
  $("many-match").value = "";
}

function forget() {
  plan = null;
  show($("many-sure"), false);
  set($("many-text"), "");
  set($("many-trouble"), "");
}

/** What the form asks for, as the path and the body of a request. */
function asked() {
  const action = $("many-action").value, match = $("many-match").value.trim(), state = $("many-state").value;
  if (action === "cancel" && !match && !state) throw new Error("Which jobs? A tag or a state is needed.");
  return { action, topic, body: { ...(match && { match }), ...(action === "cancel" && state && { state }) } };
}

const send = ({ action, topic: name, body }, more = {}) => sendJson("POST", `/v0/topics/${name}/jobs/${action}`, { ...body, ...more });

$("job-many").onsubmit = async (event) => {
  event.preventDefault();
  if (isRunning) return;
  forget();
  try {
    const made = asked(), { matched } = await send(made, { dry_run: true });
    if (made.topic !== topic) return;
    set($("many-text"), `${count(matched, "job")} would be ${WORDS[made.action]}.`);
    if (!matched) return;
    plan = { ...made, matched };
    set($("many-go"), `${made.action} ${digits(matched)}`);
    $("many-go").className = made.action === "cancel" ? "danger" : "main";
    show($("many-sure"), true);
    $("many-go").focus();
  } catch (error) {
    set($("many-trouble"), why(error));
  }
};

/** At most as many as were counted, and what comes meanwhile is left. */
async function run(made) {
  let done = 0, answer;
  do {
    answer = await send(made);
    done += answer.done;
    set($("many-text"), `${digits(done)} of ${count(made.matched, "job")} ${WORDS[made.action]}.`);
  } while (!isStopped && answer.done && answer.done < answer.matched && done < made.matched);
}

$("many-go").onclick = async () => {
  const made = plan;
  if (!made || isRunning) return;
  plan = null;
  isRunning = true;
  isStopped = false;
  set($("many-keep"), "Stop");
  show($("many-go"), false);
  try {
    await run(made);
  } catch (error) {
    set($("many-trouble"), why(error));
  } finally {
    isRunning = false;
    show($("many-sure"), false);
    show($("many-go"), true);
    set($("many-keep"), "Leave them");
    changed();
  }
};
$("many-keep").onclick = () => { if (isRunning) isStopped = true; else forget(); };
$("many-action").onchange = () => {
  show($("many-state").parentElement, $("many-action").value === "cancel");
  if (!isRunning) forget();
};
