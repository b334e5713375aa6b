// A topic's configuration as a form.  A PUT replaces it as a whole (§1.1), so the form has every field,
// and numbers are text here: they go up to 2^64 - 1.

import { ask, sendText, why } from "./api.js";
import { $, make, set } from "./dom.js";
import { fields, isJson, parse } from "./json.js";

const CHOICES = {
  durability: ["ephemeral", "memory", "disk", "fsync"], discard: ["old", "reject"],
  auto_priority: ["true", "false"], auto_create: ["true", "false"], dedupe_node: ["true", "false"], leases_durable: ["true", "false"],
  order: ["", "group"], fair: ["", "true", "false"],
};
const ABSENT = ["order", "fair", "rate", "max_in_flight", "group_max_in_flight", "backoff", "result_ttl_ms", "keep_done"]; // not in the config where they are not given
const OF_QUEUES = ["lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable", ...ABSENT];
const OBJECTS = ["rate", "backoff", "kafka_configs"]; // as JSON
const FIXED = ["type", "durable"]; // the one cannot be changed, the other follows from the class
const TEXTS = ["dead_letter", "durability", "discard", "order"];
const MEANINGS = {
  ttl_ms: "records older than this expire; 0: never", cap_records: "most records; 0: no cap", cap_bytes: "most bytes; 0: no cap",
  discard: "when full: evict the oldest, or refuse writes", durability: "what an answer to a write promises",
  priority: "-1000 to 1000; empty: by recent reads", idempotency_window_ms: "how long keys are remembered",
  dedupe_node: "readers may leave out their own records", auto_create: "a write may create it", lease_ms: "how long a claim leases a job",
  claim_jitter_ms: "claims wait for each other this long", max_deliveries: "then to the dead letters; 0: no limit",
  dead_letter: "topic of the dead letters; empty: none", leases_durable: "leases survive a crash",
  order: "group: one job of a group after another", fair: "claims take groups in turn",
  rate: 'jobs started at most: {"max": 100, "per_ms": 60000}; empty: no limit', max_in_flight: "jobs leased at once; empty: no limit",
  group_max_in_flight: "the same of one group", backoff: 'how long a job rests that failed: {"base_ms": 1000}; empty: not at all',
  result_ttl_ms: "how long what became of a job is kept; empty: an hour", keep_done: "of how many jobs; empty: 1,000",
};

let topic = "", loaded = ""; // the config that the form was made of, as text

const current = async () => fields(parse(await (await ask(`/v0/topics/${topic}?touch=false`, { signal: AbortSignal.timeout(10000) })).text())).config;

export async function openSettings(name) {
  if (topic === name && loaded) return;
  topic = name;
  loaded = "";
  set($("settings-trouble"), "");
  set($("settings-done"), "");
  try {
    const config = await current();
    if (topic === name) fill(config);
  } catch (error) {
    if (topic === name) set($("settings-trouble"), why(error));
  }
}

export const forgetSettings = () => { topic = loaded = ""; $("settings-fields").replaceChildren(); };

/** Every field, also those that the config does not have. */
const whole = (config) => ({ ...fields(config), ...Object.fromEntries(ABSENT.filter((name) => !(name in fields(config))).map((name) => [name, "null"])) });

function fill(config) {
  loaded = config.text;
  const values = whole(config), isQueue = values.type === '"queue"';
  const shown = Object.entries(values).filter(([name]) => !FIXED.includes(name) && (isQueue || !OF_QUEUES.includes(name)));
  $("settings-fields").replaceChildren(...shown.map(([name, value]) => field(name, value)));
}

function field(name, value) {
  const text = value === "null" ? "" : value.text ?? (value[0] === '"' ? JSON.parse(value) : value);
  const input = make(CHOICES[name] ? "select" : "input");
  if (CHOICES[name]) input.append(...CHOICES[name].map((choice) => new Option(choice, choice, false, choice === text)));
  else {
    input.value = text;
    input.spellcheck = false;
    if (!TEXTS.includes(name) && !OBJECTS.includes(name)) input.inputMode = "numeric";
  }
  input.name = name;
  return make("label", "", make("span", "name", name), input, make("span", "soft", MEANINGS[name] ?? ""));
}

/** The config of the form as JSON: fields that it does not show keep what they have. */
function body() {
  const values = whole(parse(loaded)), parts = [];
  for (const [name, before] of Object.entries(values)) {
    if (FIXED.includes(name)) continue;
    const input = $("settings-fields").querySelector(`[name="${CSS.escape(name)}"]`);
    if (!input) { parts.push(`${JSON.stringify(name)}:${before.text ?? before}`); continue; }
    const text = input.value.trim();
    const isRaw = OBJECTS.includes(name) ? isJson(text) : /^-?\d+$|^true$|^false$/.test(text) && !TEXTS.includes(name);
    parts.push(`${JSON.stringify(name)}:${text === "" ? "null" : isRaw ? text : JSON.stringify(text)}`);
  }
  return `{${parts.join(",")}}`;
}

$("settings").onsubmit = async (event) => {
  event.preventDefault();
  if (!loaded) return;
  const name = topic;
  set($("settings-trouble"), "");
  set($("settings-done"), "");
  $("settings-save").disabled = true;
  try {
    const now = await current();
    if (now.text !== loaded) {
      fill(now);
      throw new Error("It was changed by another meanwhile. The form has what is in force now.");
    }
    fill(fields(parse(await sendText("PUT", `/v0/topics/${name}`, body()))).config);
    set($("settings-done"), "Saved.");
  } catch (error) {
    set($("settings-trouble"), why(error));
  } finally {
    $("settings-save").disabled = false;
  }
};
