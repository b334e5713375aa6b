// What may be done with jobs: promote, retry, cancel (§10.9).
//
// Of one job a cancel is asked for twice, and a refusal stands where the button is.  Of many, those of some tags are
// counted first, by a dry run, and changed when that is confirmed; one call changes a bounded number of them.

import { sendJson, why } from "./api.js";
import { $, button, count, digits, make, set, show, visible } from "./dom.js";

const MEANINGS = {
  promote: "may be claimed now; its deliveries count on", retry: "is tried again, as if it had not failed",
  cancel: "is deleted, and nothing is kept of it",
};
const SAID = { promote: "may be claimed now", retry: "is tried again", cancel: "is cancelled" };

/** What there is to do with a job in this state. */
function possible({ state, deliveries, dead_letter: letter }) {
  if (state === "delayed") return deliveries ? ["promote", "retry", "cancel"] : ["promote", "cancel"];
  if (state === "ready") return deliveries ? ["retry", "cancel"] : ["cancel"];
  return state === "dead" && letter ? ["retry"] : [];
}

export class Acts {
  /** @param done Called with what was done, in words. */
  constructor(topic, done) {
    Object.assign(this, { topic, done, names: "", isAsking: false });
    this.buttons = make("span", "acts");
    this.question = make("span", "acts");
    this.trouble = make("span", "trouble");
    this.trouble.setAttribute("role", "alert");
    this.box = make("div", "job-acts", this.buttons, this.question, this.trouble);
    show(this.question, false);
    show(this.trouble, false);
  }

  update(job) {
    const names = possible(job).join(" ");
    this.seq = job.seq;
    if (names === this.names) return;
    this.names = names;
    if (!names.includes("cancel")) this.ask(false);
    this.buttons.replaceChildren(...possible(job).map((name) => {
      const made = button(name, () => (name === "cancel" ? this.ask(true) : this.act(name)));
      made.title = visible(`The job ${MEANINGS[name]}.`);
      made.ariaLabel = `${name} job ${job.seq}`;
      return made;
    }));
  }

  ask(isAsking) {
    this.isAsking = isAsking;
    show(this.buttons, !isAsking);
    show(this.question, isAsking);
    if (!isAsking) return;
    show(this.trouble, false);
    const sure = button(`cancel job ${digits(this.seq)}`, () => { this.ask(false); return this.act("cancel"); }, "sure");
    this.question.replaceChildren(sure, button("keep it", () => this.ask(false)));
    sure.focus();
  }

  async act(name) {
    const { topic, seq } = this;
    show(this.trouble, false);
    try {
      const answer = await sendJson("POST", `/v0/topics/${topic}/jobs/${seq}/${name}`, {});
      this.done(`Job ${digits(seq)} ${answer.done ? SAID[name] : "was left as it is"}.`);
    } catch (error) {
      set(this.trouble, why(error));
      show(this.trouble, true);
    }
  }
}

// ---- many jobs

const WORDS = { promote: "promoted", retry: "retried", cancel: "cancelled" };

let topic = "", changed = () => {}, plan = null, isRunning = false, isStopped = false;

/** Begin with the queue of that name; `onChange` is called when jobs were changed. */
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
