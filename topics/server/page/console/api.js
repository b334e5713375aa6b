// Requests to the server that this page came from, with the key that was typed in.

const PLACE = "topics.key";

let key = stored(); // of this tab, and gone with it: never in a URL, a cookie or a lasting storage
const listeners = [];
let onRefusedKey = () => {};

/** The key that was typed into this tab before; a browser may refuse to keep any. */
function stored() {
  try { return sessionStorage.getItem(PLACE) ?? ""; } catch { return ""; }
}

function keep(typed) {
  try {
    if (typed) sessionStorage.setItem(PLACE, typed);
    else sessionStorage.removeItem(PLACE);
  } catch { /* it lasts as long as the page, then */ }
}

export const hasKey = () => key !== "";
export const onKey = (call) => listeners.push(call);

/** Called when the server asks for a key; one without keys never does. */
export const onKeyAsked = (call) => { onRefusedKey = call; };

export function useKey(typed) {
  key = typed;
  keep(typed);
  listeners.forEach((call) => call());
}

export class Refused extends Error {
  constructor(status, { code = "", message = `status ${status}`, detail = {} } = {}, retryMs = 0) {
    super(message);
    Object.assign(this, { status, code, detail, retryMs });
  }
}

class Unreachable extends Error {}

// Paths are taken relative to the page, so that a proxy may serve all of it under a prefix.
export async function ask(path, { headers = {}, ...options } = {}) {
  headers = { Prefer: "handling=strict", ...headers };
  if (key) headers.Authorization = "Bearer " + key;
  const answer = await fetch("." + path, { cache: "no-store", ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Unreachable(error.message);
  });
  if (answer.ok) return answer;
  if (answer.status === 401) onRefusedKey();
  const { error } = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, error, 1000 * (Number(answer.headers.get("retry-after")) || 0));
}

const patience = () => AbortSignal.timeout(10000);

export const getJson = async (path, signal = patience()) => (await ask(path, { signal })).json();
export const remove = async (path) => (await ask(path, { method: "DELETE", signal: patience() })).json();

/** Send a body, an object or JSON that is text already; returns the text of the answer. */
export async function sendText(method, path, body, headers = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  headers = { "Content-Type": "application/json", ...headers };
  return (await ask(path, { method, headers, body: text, signal: AbortSignal.timeout(60000) })).text();
}
export const sendJson = async (...request) => JSON.parse(await sendText(...request));

export function why(error) {
  if (!(error instanceof Refused)) {
    return error instanceof Unreachable || error.name === "TimeoutError" ? "The server cannot be reached." : error.message;
  }
  if (error.status === 401) return key ? "The server does not know this key." : "This server asks for a key. Type it in above.";
  return `${error.message} (${error.status} ${error.code})`;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same request for a shell.  A key is a variable there, and never in the text. */
export function curl(method, path, body) {
  const parts = ["curl"];
  if (method !== (body === undefined ? "GET" : "POST")) parts.push("-X", method);
  parts.push(quoted(String(new URL("." + path, document.baseURI))));
  if (key) parts.push('-H "Authorization: Bearer $TOPICS_API_KEY"');
  if (body !== undefined) parts.push("-H content-type:application/json -d", quoted(typeof body === "string" ? body : JSON.stringify(body)));
  return parts.join(" ");
}
