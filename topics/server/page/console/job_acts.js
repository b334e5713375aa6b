// What may be done with one job: promote, retry, cancel (§10.9).  A cancel is asked for twice; a refusal stands
// where the button is.

import { sendJson, why } from "./api.js";
import { button, digits, make, set, show, visible } from "./dom.js";

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
