// The server that a client talks to, and the headers of every request to it.

/** Where requests go. */
export interface Target {
  /** Its root, without a slash at the end. */
  url: string;
  headers: { [name: string]: string };
}

const LOCAL_URL = "http://127.0.0.1:4000";
/** With a host, without credentials, and no list of several. */
const ONE_URL = /^https?:\/\/[^\s,@/?#]+([/?#]|$)/i;

/**
 * The server at a URL; without one at `TOPICS_URL` of Node's environment, else the one that a page
 * came from, else http://127.0.0.1:4000. Without a key it is `TOPICS_API_KEY`'s, if Node's
 * environment has that.
 *
 * @throws TypeError the URL is none of http or https, or has credentials; or the key cannot stand
 *     in a header
 */
export function parseTarget(url: string | URL | undefined, api_key: string | undefined): Target {
  const text = String(url ?? environment("TOPICS_URL") ?? pageOrigin() ?? LOCAL_URL);
  if (!ONE_URL.test(text)) {
    // The message is without the URL, which may have a password.
    throw new TypeError(`expected one URL of http or https, without credentials: ${LOCAL_URL}`);
  }
  const parsed = new URL(text);
  const headers: Target["headers"] = {
    accept: "application/json",
    // A field that the server does not know is a mistake, or a server that is too old for it.
    prefer: "handling=strict",
  };
  const key = api_key ?? environment("TOPICS_API_KEY");
  if (key !== undefined) {
    // The message is without it: messages end in logs.
    if (!/^[!-~]+$/.test(key))
      throw new TypeError("the API key has characters that are not visible ASCII");
    headers.authorization = `Bearer ${key}`;
  }
  return { url: parsed.origin + parsed.pathname.replace(/\/+$/, ""), headers };
}

/**
 * A variable of Node's environment. Deno would ask its user, so there a program gives the value
 * itself.
 */
function environment(name: string): string | undefined {
  if ("Deno" in globalThis) return undefined;
  return (globalThis as any).process?.env?.[name] || undefined;
}

function pageOrigin(): string | undefined {
  const origin = globalThis.location?.origin;
  return /^https?:/.test(origin ?? "") ? origin : undefined;
}
