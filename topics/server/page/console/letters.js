// The dead letters of a queue, beside it: why each died, and back to the queue, one by one or those of a tag (§10.6).

import { getJson, sendJson, why } from "./api.js";
import { $, button, clock, count, digits, link, make, set, show, toSecond, visible } from "./dom.js";
import { fields, preview } from "./json.js";
import { read } from "./reading.js";

const MARK = "$dead_letter_", PAGE = 50, MOVED_MAX = 1000, PREVIEW_CHARS = 120;
const LABELS = ["Letter", "Job", "Died", "Deliveries", "Why", "Tag", "Data", "Do"];

let view = null; // {queue, topic, from, next, key} of the page on show
let turn = 0, plan = null, isRunning = false, isStopped = false;

/** Show the dead letters in `topic` that `queue` names. */
export function openLetters(queue, topic) {
  if (view?.topic !== topic || view.queue !== queue) {
    view = { queue, topic, froms: [0], next: null };
    isStopped = true;
    forgetPlan();
    $("letters-match").value = "";
    set($("letters-done"), "");
    const place = $("letters-topic");
    set(place, topic);
    place.href = `#/topics/${topic}`;
  }
  refreshLetters();
}

export function forgetLetters() {
  view = null;
  turn++;
  isStopped = true;
}

function forgetPlan() {
  plan = null;
  show($("letters-sure"), false);
  set($("letters-text"), "");
  set($("letters-trouble"), "");
}

export async function refreshLetters() {
  const mine = ++turn, about = view;
  if (!about) return;
  try {
    const page = await read(about.topic, { from_seq: about.froms.at(-1), limit: PAGE, include_tags: true });
    if (mine !== turn) return;
    about.next = page.isEnd ? null : page.next;
    set($("letters-trouble-list"), "");
    draw(page.items.filter((item) => item.seq));
  } catch (error) {
    if (mine !== turn) return;
    const isMissing = error.code === "topic_not_found";
    set($("letters-trouble-list"), isMissing ? "" : why(error));
    if (isMissing) draw([]); // the first letter makes the topic
  }
  show($("letters-trouble-list"), $("letters-trouble-list").textContent !== "");
}

/** What the server added to a letter's meta: its queue, its job, how often it was delivered, and why it died. */
function stamps({ meta }) {
  const found = meta?.parts ? fields(meta) : {}, value = (name) => (found[MARK + name] === undefined ? null : JSON.parse(found[MARK + name].text ?? found[MARK + name]));
  return { from: value("from"), job: value("src_seq"), deliveries: value("deliveries"), reason: value("reason"), errors: value("errors") ?? [] };
}

function draw(letters) {
  const { queue, topic } = view, known = letters.map((each) => ({ ...each, ...stamps(each) }));
  const key = JSON.stringify([topic, known.map(({ seq }) => seq)]);
  const others = known.filter(({ from }) => from !== null && from !== queue).length;
  set($("letters-others"), others ? `${count(others, "letter")} here ${others === 1 ? "is" : "are"} of another queue; a match sends those too.` : "");
  show($("letters-others"), others > 0);
  set($("letters-range"), `${count(known.length, "letter")}${view.next === null ? "" : " and more"}`);
  show($("no-letters"), !known.length);
  $("letters-first").disabled = $("letters-back").disabled = view.froms.length === 1;
  $("letters-next").disabled = view.next === null;
  if (view.key === key) return; // letters never change
  view.key = key;
  $("letter-list").replaceChildren(...known.map(row));
}

function row(letter) {
  const { seq, ts, tag, data, from, job, deliveries, reason, errors } = letter;
  const why = errors.map(({ time, node, reason: each }) => `${clock(time)} ${node}: ${each}`).join("\n") || (reason ?? "");
  const trouble = make("span", "trouble"), done = make("span", "acts");
  trouble.setAttribute("role", "alert");
  show(trouble, false);
  const back = button("send back", () => sendBack(letter, back, trouble));
  back.ariaLabel = `send back letter ${seq}`;
  done.append(back);
  const cells = [
    link(digits(seq), `#/topics/${view.topic}/records/${seq}`), job === null ? "" : `${from === view.queue ? "" : `${from} `}${digits(job)}`,
    toSecond(ts), deliveries === null ? "" : digits(deliveries), reason ?? "", tag ?? "", preview(data, PREVIEW_CHARS), make("div", "job-acts", done, trouble),
  ];
  return make("tr", "", ...cells.map((cell, i) => {
    const made = make("td", `${i === 3 ? "number " : ""}${LABELS[i].toLowerCase()}`, cell);
    made.dataset.label = LABELS[i];
    if (i === 4) made.title = visible(why);
    if (!made.textContent) made.classList.add("void");
    return made;
  }));
}

const redrive = (body) => sendJson("POST", `/v0/topics/${view.topic}/redrive`, { to: view.queue, ...body });

async function sendBack({ seq }, back, trouble) {
  show(trouble, false);
  back.disabled = true;
  try {
    const { moved } = await redrive({ seqs: [seq] });
    set($("letters-done"), moved ? `Letter ${digits(seq)} is a job of ${view.queue} again.` : `Letter ${digits(seq)} is not there any more.`);
    refreshLetters();
  } catch (error) {
    set(trouble, why(error));
    show(trouble, true);
    back.disabled = false;
  }
}

// ---- many

$("letters-many").onsubmit = async (event) => {
  event.preventDefault();
  if (isRunning) return;
  forgetPlan();
  const about = view, match = $("letters-match").value.trim();
  try {
    const [found, state] = await Promise.all([redrive({ dry_run: true, ...(match && { match }) }), getJson(`/v0/topics/${about.topic}?touch=false`)]);
    if (about !== view) return;
    const n = !match ? state.count : found.moved, isMore = match && found.more;
    set($("letters-text"), `${isMore ? "At least " : ""}${count(n, "letter")} would go back to ${about.queue}.`);
    if (!n) return;
    plan = { match, most: match && !isMore ? n : state.count };
    show($("letters-sure"), true);
    $("letters-go").focus();
  } catch (error) {
    set($("letters-trouble"), why(error));
  }
};

/** As many as were there when it began: what dies meanwhile stays. */
async function run({ match, most }) {
  let moved = 0, answer;
  do {
    answer = await redrive({ max: Math.min(most - moved, MOVED_MAX), ...(match && { match }) });
    moved += answer.moved;
    set($("letters-text"), `${count(moved, "letter")} sent back.`);
  } while (!isStopped && answer.moved && answer.more && moved < most);
}

$("letters-go").onclick = async () => {
  const made = plan;
  if (!made || isRunning) return;
  plan = null;
  isRunning = true;
  isStopped = false;
  show($("letters-go"), false);
  set($("letters-keep"), "Stop");
  try {
    await run(made);
  } catch (error) {
    set($("letters-trouble"), why(error));
  } finally {
    isRunning = false;
    show($("letters-sure"), false);
    show($("letters-go"), true);
    set($("letters-keep"), "Leave them");
    refreshLetters();
  }
};
$("letters-keep").onclick = () => { if (isRunning) isStopped = true; else forgetPlan(); };
$("letters-first").onclick = () => { view.froms = [0]; refreshLetters(); };
$("letters-back").onclick = () => { view.froms.pop(); refreshLetters(); };
$("letters-next").onclick = () => { view.froms.push(view.next); refreshLetters(); };
$("letters-heads").append(...LABELS.map((label) => {
  const head = make("th", label === "Deliveries" ? "number" : "", label);
  head.scope = "col";
  return head;
}));
