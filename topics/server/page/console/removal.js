// Deleting records and topics: first a count of what would be hit, then the topic's name, typed.
//
// The server has no dry run, so what would be hit is read and counted, up to a bound.  A delete then
// carries the head as of the count as its bound: it hits nothing that was written since.

import { getJson, remove, sendJson, why } from "./api.js";
import { $, count, digits, make, set, show } from "./dom.js";
import { ofPartition, read } from "./reading.js";

const COUNTED_MAX = 20000, REQUESTS_MAX = 40;

let topic = "", onChange = () => {}, plan = null; // {run, text}

export function openRemoval(name, changed) {
  onChange = changed;
  if (topic === name) return;
  topic = name;
  forget();
}

function forget() {
  plan = null;
  show($("confirm"), false);
  set($("removal-trouble"), "");
  set($("removal-done"), "");
}

/** Count the records below a seq that match. @returns {n, isMore} */
async function tally(body, isHit, endSeq) {
  let at = 0, n = 0;
  for (let i = 0; i < REQUESTS_MAX && n < COUNTED_MAX; i++) {
    const page = await read(topic, { ...body, from_seq: at, limit: 1000, include_tags: true, include_meta: false });
    n += page.items.filter((item) => item.seq && item.seq < endSeq && isHit(item)).length;
    at = page.next;
    if (page.isEnd || at >= endSeq - 1) return { n, isMore: false };
  }
  return { n, isMore: true };
}

/** Whether a tag matches a pattern of `purge`: token by token between dots. */
export function matches(filter, tag) {
  if (tag === null) return false;
  const wanted = filter.split("."), tokens = tag.split(".");
  const isOpen = wanted.at(-1) === ">";
  if (isOpen ? tokens.length < wanted.length : tokens.length !== wanted.length) return false;
  return wanted.every((each, i) => each === "*" || (isOpen && i === wanted.length - 1) || each === tokens[i]);
}

const told = ({ n, isMore }, what) => `${isMore ? "at least " : ""}${count(n, what)}`;

/** The topic that is on show, or the partition of it, as a request is told. */
async function shown() {
  const state = await getJson(`/v0/topics/${topic}?touch=false`), { partition } = ofPartition();
  return partition === undefined ? { ...state, where: topic } : { ...state.partitions[partition], where: `${topic}, partition ${partition}` };
}

async function planDelete() {
  const tag = $("delete-tag").value.trim(), typed = $("delete-before").value.trim(), erase = $("delete-erase").checked;
  if (!tag && !typed) throw new Error("A tag or a seq is needed: to remove everything, purge.");
  const state = await shown(), end = state.head_seq + 1;
  const before = typed ? Math.min(Number(typed), end) : end;
  const found = await tally(tag ? { match: tag } : {}, () => true, before);
  const body = { before_seq: before, ...(tag && { match: tag }), ...(erase && { erase }), ...ofPartition() };
  const also = erase ? " Their bytes, and those of all that was deleted before, would be erased." : "";
  return {
    text: `${told(found, "record")} of ${digits(state.count)} in ${state.where} would be deleted.${also}`,
    run: async () => {
      const { deleted } = await sendJson("POST", `/v0/topics/${topic}/delete`, body);
      return `${count(deleted, "record")} deleted${erase ? ", and the bytes are erased" : ""}.`;
    },
  };
}

async function planPurge() {
  const filter = $("purge-filter").value.trim(), typed = $("purge-keep").value.trim(), keep = Number(typed || 0);
  const state = await shown();
  const found = filter ? await tally({}, (item) => matches(filter, item.tag), state.head_seq + 1) : { n: state.count, isMore: false };
  found.n = Math.max(found.n - keep, 0);
  const body = { ...(filter && { filter }), ...(typed && { keep }), ...ofPartition() };
  return {
    text: `${told(found, "record")} of ${digits(state.count)} in ${state.where} would be purged, and what is written until then.`,
    run: async () => `${count((await sendJson("POST", `/v0/topics/${topic}/purge`, body)).purged, "record")} purged.`,
  };
}

async function planDrop() {
  const [state, from, into] = await Promise.all([
    getJson(`/v0/topics/${topic}?touch=false`),
    getJson(`/v0/routers?source=${topic}&page_size=1000`),
    getJson(`/v0/routers?dest=${topic}&page_size=1000`),
  ]);
  const routers = [...from.routers, ...into.routers].map(({ router }) => router);
  const also = routers.length ? ` and ${count(routers.length, "router")} (${routers.slice(0, 5).join(", ")}${routers.length > 5 ? ", …" : ""})` : "";
  return {
    text: `The topic ${topic} with ${count(state.count, "record")}${also} would be deleted.`,
    run: async () => {
      const answer = await remove(`/v0/topics/${topic}`);
      return answer.deleted ? `The topic ${topic} is deleted.` : `There was no topic ${topic}.`;
    },
  };
}

async function prepare(planned, before) {
  forget();
  const name = topic;
  before.disabled = true;
  try {
    const made = await planned();
    if (topic !== name) return;
    plan = made;
    set($("confirm-text"), made.text);
    set($("confirm-name"), name);
    $("confirm-typed").value = "";
    $("confirm-go").disabled = true;
    show($("confirm"), true);
    $("confirm-typed").focus();
  } catch (error) {
    set($("removal-trouble"), why(error));
  } finally {
    before.disabled = false;
  }
}

for (const [form, planned] of [["delete-records", planDelete], ["purge", planPurge], ["drop", planDrop]]) {
  $(form).onsubmit = (event) => { event.preventDefault(); prepare(planned, event.target.querySelector("button")); };
}
$("confirm-typed").oninput = () => { $("confirm-go").disabled = $("confirm-typed").value !== topic; };
$("confirm-cancel").onclick = forget;
$("confirm").onkeydown = (event) => { if (event.key === "Escape") forget(); };
$("confirm").onsubmit = async (event) => {
  event.preventDefault();
  if (!plan || $("confirm-typed").value !== topic) return;
  const { run } = plan;
  plan = null;
  $("confirm-go").disabled = true;
  try {
    const done = await run();
    forget();
    $("removal-done").replaceChildren(make("span", "", done));
    onChange();
  } catch (error) {
    forget();
    set($("removal-trouble"), why(error));
  }
};
