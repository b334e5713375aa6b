// `EventConnection`: an event stream of the server over any number of connections.
//
// A watch's stream (§7) and a worker's (§10.8) end for the same reasons and come back by the same
// rules. Owns those; what the events mean is in `watch` and `pushed-jobs`.

import { badAnswer, streamError, Unreachable, unreachable, type TopicsError } from "./errors.js";
import {
  Attempts,
  isWorthRepeating,
  serverPause,
  StreamAttempts,
  type Outcome,
  type Repeating,
} from "./retry.js";
import { errorOfOutcome, type Call, type Session, type Stream } from "./session.js";
import { EventParser, type ServerEvent } from "./sse.js";
import { sleep } from "./waiting.js";

/** The longest pause that a `retry` field is obeyed for, in milliseconds. */
const RECONNECT_MS_MAX = 60_000;
/** Status of an `error` event that says that the server paces the stream, which goes on (§7.5). */
const ADVISORY = 429;

/** Called with the error when the connection is lost, and with null when it is made again. */
export type OnConnection = (error: TopicsError | null) => void;

export class EventConnection {
  /** What came of the last connection, or of the last call before one. */
  outcome: Outcome = ended();
  #attempts: Attempts | undefined;
  readonly #streams: StreamAttempts;
  #hasHeard = false;
  #error: TopicsError | undefined;
  #asked_ms = 0;
  #isLost = false;

  readonly #session: Session;
  readonly #signal: AbortSignal;
  readonly #onConnection: OnConnection;

  constructor(session: Session, signal: AbortSignal, onConnection: OnConnection = () => {}) {
    this.#session = session;
    this.#signal = signal;
    this.#onConnection = onConnection;
    this.#streams = new StreamAttempts(session.options.retry);
  }

  /** The status of the last connection's refusal; 0 where there was none. */
  get status(): number {
    return this.#hasHeard ? 0 : this.outcome.status;
  }

  /**
   * The events of one connection; what ended it is the `outcome`.
   *
   * @param idle_ms how long the server may send nothing
   */
  async *events(call: Call, idle_ms: number): AsyncGenerator<ServerEvent, void, undefined> {
    this.#hasHeard = false;
    this.#error = undefined;
    const stream = await this.#session.open({ ...call, signal: this.#signal }, idle_ms);
    this.#streams.opened();
    if ("next" in stream) yield* this.#read(stream);
    else if (errorOfOutcome(stream)) this.outcome = stream;
    else throw badAnswer("expected an event stream", stream.status);
  }

  async *#read(stream: Stream): AsyncGenerator<ServerEvent, void, undefined> {
    const parser = new EventParser();
    this.outcome = ended();
    try {
      for (let piece = await stream.next(); piece !== null; piece = await stream.next()) {
        if (piece instanceof Unreachable) {
          this.outcome = piece;
          return;
        }
        for (const event of parser.feed(piece)) {
          this.#heard(event);
          yield event;
        }
      }
    } finally {
      stream.close();
    }
  }

  /** Note that the server sent something: a failure after this has attempts of its own. */
  #heard({ kind, retry_ms }: ServerEvent): void {
    this.#streams.heard(kind !== "" && kind !== "error");
    this.#hasHeard = true;
    this.#attempts = undefined;
    if (retry_ms !== undefined) this.#asked_ms = Math.min(retry_ms, RECONNECT_MS_MAX);
    if (this.#isLost) this.#onConnection(null);
    this.#isLost = false;
  }

  /** The error of an `error` event, which ends the stream; undefined where the stream goes on. */
  errorOf(event: ServerEvent): TopicsError | undefined {
    const { code, error = "", retry_after_ms = 0 } = this.#session.decode(event.data);
    if (code === ADVISORY) return undefined;
    this.#error = streamError(code, error, retry_after_ms);
    return this.#error;
  }

  /** Wait until the next connection is to be made; throws where there is to be none. */
  async pause(call: Repeating = {}): Promise<void> {
    const ms = this.#hasHeard
      ? this.#pauseAfterEvents()
      : this.#pauseAfterFailure(isWorthRepeating(call, this.outcome));
    await sleep(ms, this.#signal);
  }

  /** Wait after a call that failed; throws its error where it is not to be sent again. */
  async pauseAfter(outcome: Outcome, isWorth: boolean): Promise<void> {
    this.outcome = outcome;
    await sleep(this.#pauseAfterFailure(isWorth), this.#signal);
  }

  #pauseAfterEvents(): number {
    const { outcome } = this;
    const error = this.#error;
    const why = error ?? errorOfOutcome(outcome)!;
    const least_ms = Math.max(
      this.#asked_ms,
      this.#session.options.retry.first_pause_ms,
      error?.retry_after_ms ?? 0,
    );
    // The server closes all streams in the same moment when it stops: their clients come back one
    // by one.
    const pause_ms = least_ms * (1 + 0.5 * Math.random());
    if (!this.#streams.goesOn(pause_ms, (outcome as Unreachable).isSilence)) throw why;
    this.#lose(why);
    return pause_ms;
  }

  #pauseAfterFailure(isWorth: boolean): number {
    const why = errorOfOutcome(this.outcome)!;
    const attempts = (this.#attempts ??= new Attempts(this.#session.options.retry));
    const pause_ms = isWorth
      ? attempts.pause(Math.max(serverPause(this.outcome) ?? 0, this.#asked_ms))
      : undefined;
    if (pause_ms === undefined) {
      // The error is the program's; if it goes on all the same, it has the whole time again.
      this.#attempts = undefined;
      throw why;
    }
    this.#lose(why);
    return pause_ms;
  }

  #lose(why: TopicsError): void {
    if (!this.#isLost) this.#onConnection(why);
    this.#isLost = true;
  }
}

function ended(): Unreachable {
  return unreachable("the stream ended");
}
