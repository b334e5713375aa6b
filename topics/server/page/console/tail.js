// The live tail of a topic: a watch session over `fetch`, so that the key is a header (§7).

import { ask, onKey, Refused, why } from "./api.js";
import { $, clock, count, digits, make, set, sleep } from "./dom.js";
import { fields, laidOut, parse } from "./json.js";
import { lossText, ofPartition } from "./reading.js";

const SILENCE_MS = 35000, RETRY_MAX_MS = 10000, LINES_MAX = 500, FIRST_RECORDS = 20;

/** A record; of a topic with several partitions, behind the number of its own. */
function recordLine(record, partition) {
  const { $seq: seq, $ts: ts, $tag: tag, $node: node, data, meta } = fields(record);
  const about = make("div", "about", make("time", "", clock(Number(ts))));
  if (tag) about.append(make("span", "by", "# " + JSON.parse(tag)));
  if (node) about.append(make("span", "by", "@ " + JSON.parse(node)));
  const row = make("div", "row", make("span", "seq", seq), about, laidOut(data));
  if (meta) row.append(laidOut(meta, "meta "));
  row.dataset.seq = seq;
  if (partition !== undefined) {
    row.classList.add("split");
    row.dataset.partition = partition;
    row.prepend(make("span", "of", partition));
  }
  return row;
}

const of = (partition) => (partition === undefined ? "" : `Partition ${digits(partition)}: `);

class Tail {
  isOn = false; turn = 0; waiting = []; records = 0; gaps = 0;
  cursor = ""; url = ""; epoch = ""; at = 0; failures = 0; retryMs = 2000; waitMs = 0;
  lags = new Map(); // records of each partition that are still to come

  /** @param places Positions by topic and partition, for a topic with several. */
  constructor(topic, begin, places) { Object.assign(this, { topic, begin, places }); }

  stop(mood, state) {
    this.turn++;
    this.isOn = false;
    this.control?.abort();
    this.show(mood, state);
  }

  async run() {
    const mine = ++this.turn;
    this.isOn = true;
    for (let state = "connecting"; mine === this.turn; state = "reconnecting") {
      this.show("warn", state);
      this.control = new AbortController();
      try {
        await this.stream(this.control);
      } catch (error) {
        if (mine === this.turn) this.judge(error);
      }
      // The first try comes soon, as a restart is short.
      if (mine === this.turn) await sleep(Math.max(this.waitMs, Math.min((this.retryMs / 4) * 2 ** this.failures++, RETRY_MAX_MS)));
    }
  }

  /** A failure that another try will not mend ends the tail. */
  judge(error) {
    this.waitMs = error.retryMs ?? 0;
    if (!(error instanceof Refused) || error.status >= 500 || error.status === 429) return;
    if (error.status === 404 && this.url) { // The session went: with a restart, or in a long pause.
      this.url = "";
      return;
    }
    this.note("error", why(error));
    this.stop("bad", error.status === 404 ? "gone" : "refused");
  }

  /** Post a session that goes on where this reader is. */
  async post(signal) {
    const asked = { topics: { [this.topic]: this.begin }, include_tags: true };
    if (this.cursor || this.places) asked.cursor = this.cursor || this.places;
    const headers = { "Content-Type": "application/json" };
    const session = await (await ask("/v0/watch", { method: "POST", headers, body: JSON.stringify(asked), signal })).json();
    const { from_seq, epoch, partitions } = session.topics[this.topic];
    if (this.epoch && epoch !== this.epoch) { // Another topic of this name: the cursor is not of it.
      this.remade();
      return this.post(signal);
    }
    if (this.cursor) this.note("", partitions ? "A new session goes on where this one was." : `A new session goes on after record ${digits(this.at)}.`);
    else if (partitions) this.cursor = session.cursor;
    else Object.assign(this, { begin: { from_seq }, at: from_seq });
    Object.assign(this, { epoch, url: session.stream_url });
  }

  remade(partition) {
    this.gaps++;
    if (!partition) this.note("tombstone", "The topic was deleted and made anew (recreated). Reading on from its start.");
    Object.assign(this, { epoch: "", cursor: "", places: undefined, begin: { from_seq: 0 }, at: 0 });
  }

  /** Read the session's stream, a new one's if there is none, to its end; every event moves the cursor in the same step. */
  async stream(control) {
    const arm = () => setTimeout(() => control.abort(), SILENCE_MS);
    let watchdog = arm(), text = "";
    try {
      if (!this.url) await this.post(control.signal);
      const headers = { Accept: "text/event-stream", ...(this.cursor && { "Last-Event-ID": this.cursor }) };
      const answer = await ask(this.url, { headers, signal: control.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      this.waitMs = this.failures = 0;
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = arm();
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          if (control.signal.aborted) return;
          this.take(event);
        }
      }
    } finally {
      clearTimeout(watchdog);
      control.abort();
    }
  }

  take(event) {
    const received = {};
    for (const line of event.split("\n")) {
      const at = line.indexOf(": ");
      received[line.slice(0, at)] = line.slice(at + 2);
    }
    if (received.retry) this.retryMs = Number(received.retry);
    if (received.data === undefined) return; // a heartbeat
    this["on " + received.event]?.(received.data);
    if (received.id) this.cursor = received.id;
  }

  "on record"(data) {
    const frame = fields(parse(data)), { partition } = frame;
    for (const [, record] of frame.records.parts) this.add(() => recordLine(record, partition));
    this.records += frame.records.parts.length;
    this.at = Number(frame.to_seq);
    this.reach(partition, Number(frame.head_seq) - this.at);
  }

  /** So many records of a topic, or of one of its partitions, are still to come. */
  reach(partition, lag) {
    this.lags.set(Number(partition ?? 0), lag);
    const behind = [...this.lags.values()].reduce((sum, each) => sum + each, 0);
    if (behind) this.show("warn", `${count(behind, "record")} behind`);
    else this.show("good", "live");
  }

  "on tombstone"(data) {
    const { partition, reason, gap_from: from, gap_to: to } = JSON.parse(data);
    if (reason === "recreated") return this.remade(partition);
    this.gaps++;
    this.at = to;
    this.note("tombstone", of(partition) + lossText(from, to, reason));
    this.show("warn", "reading");
  }

  "on caught-up"(data) {
    const { partition, head_seq: head } = JSON.parse(data);
    if (head || partition === undefined) this.note("", `${of(partition)}Caught up with record ${digits(head)}.`);
    this.reach(partition, 0);
  }

  "on topic-deleted"(data) {
    const { partition, head_seq: head } = JSON.parse(data);
    if (partition) return; // The first one says so of all; of a topic that was made anew with fewer, one goes alone.
    this.note("deleted", "The topic was deleted" + (partition === undefined ? `; its last record was ${digits(head)}.` : "."));
    this.stop("bad", "deleted");
  }

  "on error"(data) {
    const { code, error, partition } = JSON.parse(data);
    if (code !== 500) return; // The stream ends and is opened again.
    this.note("error", of(partition) + error);
    if (partition === undefined) this.stop("bad", "stopped");
  }

  // Drawn once a frame, and only what is kept: a backlog comes faster than eyes.
  add(line) {
    if (this !== tail) return;
    this.waiting.push(line);
    if (this.waiting.length > 2 * LINES_MAX) this.waiting.splice(0, LINES_MAX);
    this.drawing ||= requestAnimationFrame(() => this.draw());
  }

  note(kind, text) { this.add(() => make("p", "note " + kind, text)); }

  draw() {
    this.drawing = 0;
    if (this !== tail) return;
    const lines = $("lines"), box = $("scroll");
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    lines.append(...this.waiting.splice(0).slice(-LINES_MAX).map((line) => line()));
    while (lines.children.length > LINES_MAX) lines.firstChild.remove();
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  show(mood, state) {
    if (this !== tail) return;
    $("tail").className = mood;
    set($("state"), state);
    set($("tally"), `· ${count(this.records, "record")}` + (this.gaps ? ` · ${count(this.gaps, "gap")}` : ""));
    set($("pause"), this.isOn ? "Pause" : "Resume");
  }
}

let tail;

/** Tail a topic: from a seq, which is of the partition on show where there are several; from now (`null`), or from a
 * little before its heads. */
function watch(topic, from, state) {
  tail?.stop("", "");
  const beforeHead = (head, earliest) => Math.max(head - FIRST_RECORDS, earliest - 1, 0);
  const parts = (from === undefined && state?.partitions) || [];
  const begin = from === null || (from === undefined && !state) ? { tail: true }
    : { from_seq: from ?? beforeHead(state.head, state.earliest) };
  if (from && ofPartition().partition !== undefined) begin.partitions = [ofPartition().partition];
  const places = parts.map(({ partition, head_seq, earliest_seq }) =>
    [`${topic}#${partition}`, beforeHead(Number(head_seq), Number(earliest_seq))]);
  tail = new Tail(topic, begin, parts.length ? Object.fromEntries(places) : undefined);
  $("lines").replaceChildren();
  tail.run();
}

/** Show the tail of a topic, which goes on where it is if it was shown before. */
export function openTail(topic, state) {
  if (tail?.topic !== topic) watch(topic, undefined, state);
  else if (tail.wasLeft) { tail.wasLeft = false; tail.run(); }
}

/** The tail is not in sight: it takes nothing meanwhile. */
export function leaveTail() {
  if (!tail?.isOn) return;
  tail.wasLeft = true;
  tail.stop("", "paused");
}

export const forgetTail = () => { leaveTail(); tail = undefined; };

$("pause").onclick = () => (tail.isOn ? tail.stop("", "paused") : tail.run());
$("start").onclick = () => watch(tail.topic, 0);
$("now").onclick = () => watch(tail.topic, null);
$("jump").onsubmit = (event) => { event.preventDefault(); watch(tail.topic, $("after").valueAsNumber); };
onKey(() => {
  if (!tail?.isOn) return;
  tail.stop("", "paused");
  tail.url = "";
  tail.run();
});
