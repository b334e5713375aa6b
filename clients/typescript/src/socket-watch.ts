// `SocketWatch`: a watch over a WebSocket.
//
// Frames wait as they came, and count once they are handed out. So a subscription that is made
// anew, after a break or a rest, begins behind the page that was handed out last, and frames that
// waited are dropped.

import type { TopicsError } from "./errors.js";
import { encode } from "./json.js";
import type { WatchOptionsOnWire } from "./models.js";
import { formatCursor, type Begin, type Places, type WatchPage } from "./places.js";
import { Attempts } from "./retry.js";
import { given, type Session } from "./session.js";
import { onAbort, Settled, sleep } from "./waiting.js";

/**
 * Options of a watch over a WebSocket; a server pings its sockets itself, and needs no
 * `heartbeat_ms`.
 */
export interface SocketWatchOptions
  extends Begin, Omit<WatchOptionsOnWire, "node" | "heartbeat_ms"> {
  /** The `cursor` of an earlier watch of the same topics, to go on there. */
  cursor?: string;
}

/** Statuses of an `error` after which the same command may do better. */
export const PASSING = [429, 503];
/** Frames that may wait; beyond that the topics are left until they are taken. */
const WAITING_MAX = 64;

/** What a watch asks of its socket. */
interface Commands {
  /** Send a command; its reply, which `take` is called with before the message behind it counts. */
  command(
    op: string,
    fields: string,
    isKept: boolean,
    signal?: AbortSignal,
    take?: (reply: any) => void,
  ): Promise<any>;
  /** A watch has ended. */
  left(watch: SocketWatch<any>): void;
}

/** What `Socket.watch` returns: pages as they come, for one loop at a time. */
export class SocketWatch<D = any> implements AsyncIterable<WatchPage<D>> {
  readonly #frames: any[] = [];
  readonly #pages: WatchPage<D>[] = [];
  #isLive = false;
  #isResting = false;
  #isSubscribing = false;
  #isClosed = false;
  #error: TopicsError | undefined;
  #woken = new Settled<void>();

  #attempts: Attempts | undefined;
  readonly #socket: Commands;
  readonly #session: Session;
  readonly #places: Places<D>;
  readonly #options: { [name: string]: unknown };
  readonly #signal: AbortSignal | undefined;
  readonly #forget: () => void;

  constructor(
    socket: Commands,
    session: Session,
    places: Places<D>,
    /** Names of all topics that it was made for. */
    readonly topics: string[],
    options: { [name: string]: unknown },
    signal: AbortSignal | undefined,
  ) {
    this.#socket = socket;
    this.#session = session;
    this.#places = places;
    this.#options = options;
    this.#signal = signal;
    this.#forget = onAbort(signal, () => this.close());
  }

  /** Where to go on behind the page that was handed out last; undefined before the first answer. */
  get cursor(): string | undefined {
    return formatCursor(this.#places.reached);
  }

  /** Leave the topics; there are no more pages. */
  close(): void {
    if (this.#isClosed) return;
    // Commands are executed in order: one that subscribes, and is under way, is undone, too.
    if (this.#isLive || this.#isSubscribing) this.#leave();
    this.#isClosed = true;
    this.#forget();
    this.#socket.left(this);
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchPage<D>, void, undefined> {
    for (;;) {
      this.#signal?.throwIfAborted();
      if (this.#isClosed) return;
      if (this.#error !== undefined) throw this.#error;
      if (this.#pages.length > 0) yield this.#pages.shift()!;
      else if (this.#places.isOver) this.close();
      else if (this.#frames.length > 0) {
        const { op, ...frame } = this.#frames.shift();
        const page = this.#places.take(op, frame);
        if (page !== undefined) yield page;
      } else if (this.#isResting) this.subscribe();
      else await this.#sleep();
    }
  }

  // ---------------------------------------------------------------- what the socket tells

  /** @internal Subscribe from where the pages are. */
  subscribe(): void {
    this.#frames.length = 0;
    this.#isResting = false;
    if (this.#isSubscribing || this.#isClosed) return;
    this.#isSubscribing = true;
    const { topics, cursor } = this.#places.wanted;
    const fields = encode(
      given({ ...this.#options, topics, cursor, position: this.#session.position.text }),
    );
    // On another connection it is made anew, from where the pages are then.
    const take = (reply: any) => this.#subscribed(reply);
    this.#socket
      .command("subscribe", fields.slice(1, -1), false, undefined, take)
      .catch((error) => this.#refused(error));
  }

  /** @internal Take a message, if it is of this watch. */
  take(message: any): void {
    if (!this.#isLive || !this.topics.includes(message.topic)) return;
    this.#frames.push(message);
    this.#wake();
    if (this.#frames.length < WAITING_MAX) return;
    this.#isResting = true;
    this.#leave();
  }

  /** @internal The connection was lost. */
  lost(): void {
    this.#isLive = false;
    this.#frames.length = 0;
    this.#isResting = false;
  }

  /** @internal */
  fail(error: TopicsError): void {
    this.lost();
    this.#error ??= error;
    this.#socket.left(this);
    this.#wake();
  }

  // ---------------------------------------------------------------- its own

  #subscribed({ topics }: any): void {
    this.#isSubscribing = false;
    if (this.#isClosed) return;
    this.#attempts = undefined;
    const { pages, isStale } = this.#places.begin(topics);
    this.#pages.push(...pages);
    this.#wake();
    if (isStale) this.subscribe();
    else this.#isLive = true;
  }

  #refused(error: TopicsError): void {
    this.#isSubscribing = false;
    // The connection was lost meanwhile: the next one subscribes.
    if (error.code === "unreachable") return;
    this.#attempts ??= new Attempts(this.#session.options.retry);
    const isWorth = PASSING.includes(error.status);
    const pause_ms = isWorth ? this.#attempts.pause(error.retry_after_ms) : undefined;
    if (pause_ms === undefined) this.fail(error);
    else void sleep(pause_ms).then(() => this.#error ?? this.subscribe());
  }

  #leave(): void {
    this.#isLive = false;
    for (const topic of this.topics) {
      this.#socket.command("unsubscribe", `"topic":${encode(topic)}`, false).catch(() => {});
    }
  }

  #wake(): void {
    this.#woken.resolve();
  }

  async #sleep(): Promise<void> {
    await this.#woken.promise;
    this.#woken = new Settled();
  }
}
