// Dead letters back to their queue, oldest first, as many as are there when it begins.
//
// The server moves each in one step, so that it may be stopped anywhere.

import { getJson, sendJson, why } from "./api.js";
import { $, count, digits, set, show } from "./dom.js";
import { fields } from "./json.js";

const MARK = "$dead_letter_", BATCH = 1000;

let topic = "", isRunning = false, isStopped = false;

/** Offer it where the oldest record is a dead letter. @param oldest a record, or undefined */
export function openRedrive(name, oldest) {
  const from = oldest?.meta && fields(oldest.meta)[MARK + "from"];
  if (topic !== name) {
    topic = name;
    isStopped = true;
    set($("redrive-done"), "");
    set($("redrive-trouble"), "");
    $("redrive-to").value = "";
  }
  if (from && !$("redrive-to").value) $("redrive-to").value = JSON.parse(from);
  show($("redrive"), Boolean(from) || isRunning || $("redrive-done").textContent !== "");
}

async function run(from, to) {
  const state = await getJson(`/v0/topics/${from}?touch=false`);
  let moved = 0, left = state.count;
  while (left > 0 && !isStopped) {
    const found = await sendJson("POST", `/v0/topics/${from}/redrive`, { to, max: Math.min(left, BATCH) });
    moved += found.moved;
    left -= found.moved;
    set($("redrive-done"), `${count(moved, "letter")} moved to ${to}.`);
    if (!found.moved || !found.more) return;
  }
}

$("redrive").onsubmit = async (event) => {
  event.preventDefault();
  if (isRunning) { isStopped = true; return; }
  const from = topic, to = $("redrive-to").value.trim();
  set($("redrive-trouble"), "");
  set($("redrive-done"), "");
  isStopped = false;
  if (!$("redrive-sure").checked) {
    const state = await getJson(`/v0/topics/${from}?touch=false`).catch((error) => { set($("redrive-trouble"), why(error)); });
    if (state) set($("redrive-done"), `${digits(state.count)} would be moved to ${to}. Tick the box to move them.`);
    return;
  }
  isRunning = true;
  set($("redrive-go"), "Stop");
  try {
    await run(from, to);
  } catch (error) {
    set($("redrive-trouble"), why(error));
  } finally {
    isRunning = false;
    $("redrive-sure").checked = false;
    set($("redrive-go"), "Redrive");
  }
};
