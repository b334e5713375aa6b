// When a call is sent again, and how long the client waits before.
//
// Owns the judgement about what came of an attempt; sends nothing and waits nowhere. A refusal that
// names a time (429, 503) is obeyed to the letter of `Retry-After` (§0.6). After a connection
// broke, a call is sent again where the request cannot have arrived, or where doing it twice is
// doing it once. A 500 is not repeated, except for the calls of a worker, each of which may be done
// twice.

import { errorBody, Unreachable } from "./errors.js";

/** How patient a client is. */
export interface Retry {
  /** No attempt begins later than this after the first, in milliseconds; 0: one attempt. */
  for_ms: number;
  /** Pause after the first failure, in milliseconds; it doubles with each. */
  first_pause_ms: number;
  /** The pause that the doubling ends at. `Retry-After` may ask for more. */
  longest_pause_ms: number;
}

export const RETRY: Retry = { for_ms: 15_000, first_pause_ms: 50, longest_pause_ms: 2000 };

/** An answer of any status, whole. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/** An answer, or why none came. */
export type Outcome = Answer | Unreachable;

/** What decides whether a call is sent again. */
export interface Repeating {
  /** Doing it twice is the same as doing it once (true). */
  repeatable?: boolean;
  /** Sent again while the server answers 429 or 503 (true). */
  patient?: boolean;
  /** Sent again after a 500 too (false); for the calls of a worker. */
  outlives_faults?: boolean;
}

/** A stream that was open for so long has worked, though no event may have been due. */
const STREAM_GOOD_MS = 5000;

/** Milliseconds of a clock that only goes forward. */
export function now(): number {
  return performance.now();
}

/**
 * The attempts of one call, from the first one on, and the pauses between them. These double; half
 * of each is chance: clients that were refused together must not come back together.
 */
export class Attempts {
  readonly #retry: Retry;
  readonly #end_ms: number;
  #pause_ms: number;

  constructor(retry: Retry) {
    this.#retry = retry;
    this.#end_ms = now() + retry.for_ms;
    this.#pause_ms = retry.first_pause_ms;
  }

  /**
   * Milliseconds to wait before the next attempt, `at_least_ms` or more; undefined: there is none.
   */
  pause(at_least_ms = 0): number | undefined {
    const pause_ms = Math.max(this.#pause_ms * (0.5 + 0.5 * Math.random()), at_least_ms);
    this.#pause_ms = Math.min(2 * this.#pause_ms, this.#retry.longest_pause_ms);
    return now() + pause_ms <= this.#end_ms ? pause_ms : undefined;
  }
}

/**
 * Whether a stream is connected once more after its connection was lost.
 *
 * A connection was good where it brought an event, or was open for five seconds; then the next one
 * is made without limit. Connections that were not good, one after the other, are made for
 * `retry.for_ms` from the first loss: a server that accepts every connection and closes it at once
 * is not asked for ever.
 */
export class StreamAttempts {
  #opened_ms = now();
  #isGood = false;
  #end_ms: number | undefined;
  readonly #retry: Retry;

  constructor(retry: Retry) {
    this.#retry = retry;
  }

  /** A connection was made, and has brought nothing yet. */
  opened(): void {
    this.#opened_ms = now();
    this.#isGood = false;
  }

  /**
   * The server sent something, or ended the connection; `brings`: an event that the stream is for.
   */
  heard(brings: boolean): void {
    if (brings || now() - this.#opened_ms >= STREAM_GOOD_MS) {
      this.#isGood = true;
      this.#end_ms = undefined;
    }
  }

  /** Whether a connection that was lost now is made again, after a pause. */
  goesOn(pause_ms: number, isSilence?: boolean): boolean {
    if (!isSilence) this.heard(false);
    if (this.#isGood) return true;
    this.#end_ms ??= now() + this.#retry.for_ms;
    if (now() + pause_ms <= this.#end_ms) return true;
    this.#end_ms = undefined;
    return false;
  }
}

/** Whether another attempt could end better, and could not do the work twice. */
export function isWorthRepeating(call: Repeating, outcome: Outcome): boolean {
  const { repeatable = true, patient = true, outlives_faults = false } = call;
  if (outcome instanceof Unreachable) return repeatable || !!outcome.isUnsent;
  const { status, text } = outcome;
  if (status === 500) return repeatable && outlives_faults;
  // A proxy got no answer from the server: to the client that is a connection that broke.
  if (status === 502 || status === 504) return repeatable && patient;
  if (status !== 429 && status !== 503) return false;
  // A node of a cluster may have lost the leader while the leader had the request.
  return patient && (repeatable || errorBody(text)?.detail?.outcome !== "unknown");
}

/**
 * The pause that the server asked for: `detail.retry_after_ms`, which is finer, else `Retry-After`
 * (§0.6).
 */
export function serverPause(outcome: Outcome): number | undefined {
  if (outcome instanceof Unreachable) return undefined;
  const asked_ms = errorBody(outcome.text)?.detail?.retry_after_ms;
  if (typeof asked_ms === "number") return asked_ms;
  const text = outcome.headers.get("retry-after") ?? "";
  return /^\d+$/.test(text) ? 1000 * +text : undefined;
}
