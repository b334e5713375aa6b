// `Session`: sends calls to one server, and sends again those that are worth repeating.
//
// Owns the headers, timeouts and retry policy of one client. The client and its watches, producers
// and workers share a session. It does not know what a call means.

import { badAnswer, errorOf, Unreachable, unreachable, type TopicsError } from "./errors.js";
import { decode, encode } from "./json.js";
import { LastPosition, POSITION_HEADER } from "./position.js";
import { Attempts, isWorthRepeating, serverPause } from "./retry.js";
import type { Answer, Outcome, Repeating, Retry } from "./retry.js";
import type { Target } from "./target.js";
import { Deadline, sleep } from "./waiting.js";

/** One request, and how its answer is read. */
export interface Call extends Repeating {
  method: "GET" | "PUT" | "POST" | "DELETE";
  /** From the root, names escaped. */
  path: string;
  /** Query; what is undefined or null is left out. */
  params?: { [name: string]: unknown };
  /**
   * Becomes JSON; a property that is undefined or null is left out, and the server's default holds.
   */
  body?: { [name: string]: unknown };
  /** In place of `body`: JSON already. */
  text?: string;
  /** Beside the client's own; one that is undefined is left out. */
  headers?: { [name: string]: string | undefined };
  /** How long the server may hold the answer back on purpose, in milliseconds (§3). */
  wait_ms?: number;
  /** Ends the call, which rejects with its reason. */
  signal?: AbortSignal;
}

/** What a session is made of. */
export interface SessionOptions {
  target: Target;
  timeout_ms: number;
  retry: Retry;
  bigint: boolean | undefined;
  fetch: typeof fetch;
}

/** What Node, Deno and Bun say where no connection was made. */
const UNSENT =
  /CONN(ECTION)?REFUSED|ENOTFOUND|EAI_AGAIN|E(HOST|NET)UNREACH|CONNECT_TIMEOUT|tcp connect error/i;

export class Session {
  readonly position = new LastPosition();

  constructor(readonly options: SessionOptions) {}

  /** A JSON text's value, with exact integers where the client was asked for them. */
  decode(text: string): any {
    return decode(text, this.options.bigint);
  }

  /**
   * The value of a call's answer. The call is sent again for as long as the retry policy allows.
   *
   * @throws TopicsError the last attempt did not succeed
   */
  async do(call: Call): Promise<any> {
    return this.read(call, await this.settle(call));
  }

  /** The last outcome of a call that is sent again where that is worth it. */
  async settle(call: Call): Promise<Outcome> {
    const attempts = new Attempts(this.options.retry);
    for (;;) {
      const outcome = await this.send(call);
      if (!isWorthRepeating(call, outcome)) return outcome;
      const pause_ms = attempts.pause(serverPause(outcome));
      if (pause_ms === undefined) return outcome;
      await sleep(pause_ms, call.signal);
    }
  }

  /** The value of an outcome; throws its error where it is none. */
  read(call: Call, outcome: Outcome): any {
    const error = errorOfOutcome(outcome);
    if (error) throw error;
    const { status, text } = outcome as Answer;
    try {
      return this.decode(text);
    } catch (cause) {
      throw badAnswer(`${call.method} ${call.path}: ${cause}`, status, cause);
    }
  }

  /** What came of one attempt. */
  send(call: Call): Promise<Outcome> {
    return this.open(call) as Promise<Outcome>;
  }

  /**
   * What came of one attempt; where the answer is an event stream, that, which the caller closes.
   *
   * @param idle_ms how long the server may send nothing on a stream; without it there is none
   */
  async open(call: Call, idle_ms?: number): Promise<Stream | Outcome> {
    // What JSON has no form for is the program's error, and no reason to try again.
    const text = call.text ?? (call.body && encode(given(call.body)));
    const { timeout_ms } = this.options;
    const deadline = new Deadline(call.signal);
    const fault = (error: unknown) => this.#fault(call, deadline, error);
    let stream: Stream | undefined;
    try {
      deadline.start(timeout_ms + (call.wait_ms ?? 0));
      const response = await this.#request({ ...call, text }, deadline.signal);
      deadline.start(timeout_ms);
      if (idle_ms && isEvents(response))
        return (stream = streamOf(response.body!, deadline, idle_ms, fault));
      return await whole(response);
    } catch (error) {
      return fault(error);
    } finally {
      if (!stream) deadline.end();
    }
  }

  async #request(call: Call, signal: AbortSignal): Promise<Response> {
    const { position } = this;
    const { target, fetch } = this.options;
    const { method, text: body, params = {} } = call;
    const query = String(new URLSearchParams(given(params) as { [name: string]: string }));
    const response = await fetch(target.url + call.path + (query && `?${query}`), {
      method,
      headers: given({
        ...target.headers,
        ...call.headers,
        "content-type": body && "application/json",
        [POSITION_HEADER]: position.text,
      }) as { [name: string]: string },
      body,
      signal,
      // A key is for this server, and for no other that it names.
      redirect: "manual",
      credentials: "omit",
      cache: "no-store",
    });
    position.note(response.headers.get(POSITION_HEADER));
    return response;
  }

  /** Why no answer came; throws the reason of a signal that the program has aborted. */
  #fault(call: Call, { isOver: isSilence }: Deadline, cause: unknown): Unreachable {
    call.signal?.throwIfAborted();
    const { target, timeout_ms } = this.options;
    const words = isSilence ? `nothing came for ${timeout_ms} ms` : wordsOf(cause);
    const isUnsent = UNSENT.test(words);
    return unreachable(`${target.url}: ${words}`, { cause, isUnsent, isSilence });
  }
}

/** An event stream that is read as it comes. */
export interface Stream {
  /** The next bytes; null at the end, and the reason where the connection broke. */
  next(): Promise<Uint8Array | null | Unreachable>;
  /** End the connection. */
  close(): void;
}

function streamOf(
  body: ReadableStream<Uint8Array>,
  deadline: Deadline,
  idle_ms: number,
  fault: (error: unknown) => Unreachable,
): Stream {
  const reader = body.getReader();
  return {
    async next() {
      deadline.start(idle_ms);
      try {
        return (await reader.read()).value ?? null;
      } catch (error) {
        return fault(error);
      } finally {
        deadline.stop();
      }
    },
    close() {
      reader.cancel().catch(() => {});
      deadline.abort();
    },
  };
}

function isEvents({ status, headers }: Response): boolean {
  return status === 200 && !!headers.get("content-type")?.startsWith("text/event-stream");
}

async function whole(response: Response): Promise<Answer> {
  const { status, headers } = response;
  return { status, headers, text: await response.text() };
}

/** The error that an outcome is; undefined for an answer of 2xx. */
export function errorOfOutcome(outcome: Outcome): TopicsError | undefined {
  if (outcome instanceof Unreachable) return outcome;
  if (outcome.status >= 200 && outcome.status < 300) return undefined;
  return errorOf(outcome.status, outcome.text, serverPause(outcome));
}

/** The properties that are neither undefined nor null. */
export function given(fields: { [name: string]: unknown }): { [name: string]: unknown } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));
}

/** A path with names in it, each escaped. */
export function path(parts: TemplateStringsArray, ...names: (string | number)[]): string {
  return parts.reduce((made, part, at) => made + segment(names[at - 1]!) + part);
}

function segment(name: string | number): string {
  // A name of dots would change the path.
  if (/^\.{0,2}$/.test(String(name))) throw new TypeError(`"${name}" is not a name`);
  return encodeURIComponent(name).replaceAll("%3A", ":");
}

function wordsOf(error: any): string {
  const { message = String(error), code = "", cause } = error ?? {};
  return [message, code, cause === undefined ? "" : wordsOf(cause)].filter(Boolean).join(", ");
}
