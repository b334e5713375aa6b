// `Watch`: the records of topics as they come, over one connection after the other.
//
// A session is posted, its stream is opened and read until it ends, and is opened again after a
// pause; where the server has forgotten the session, a new one takes its place (§7.1-§7.6).

import { EventConnection, type OnConnection } from "./connection.js";
import { beginsOf, formatCursor, parseCursor, Places } from "./places.js";
import type { Begin, WatchPage, WatchTopics } from "./places.js";
import type { Signalled, WatchOptionsOnWire, WatchSession } from "./models.js";
import { isWorthRepeating } from "./retry.js";
import type { Connected } from "./resource.js";
import { errorOfOutcome, path, type Call, type Session } from "./session.js";
import type { ServerEvent } from "./sse.js";
import { Deadline } from "./waiting.js";

/** Options of `watch`; those of `Begin` are for each topic that has none of its own. */
export interface WatchOptions extends Signalled<Begin>, Omit<WatchOptionsOnWire, "node"> {
  /**
   * The `cursor` of an earlier watch of the same topics, to go on there; it overrides the
   * beginnings.
   */
  cursor?: string;
  /** Leave out topics that do not exist, instead of throwing `TopicNotFound`. */
  lenient?: boolean;
  /** Called with the error when the connection is lost, and with null when it is made again. */
  on_connection?: OnConnection;
}

const CLOSED = new TypeError("the watch is closed");
/**
 * On top of two heartbeats without a byte, after which a connection counts as lost, in milliseconds
 * (§7.6).
 */
const SLACK_MS = 5000;
/**
 * Statuses that say that the server does not know the session any more, and a new one is posted
 * (§7.4).
 */
const FORGOTTEN = [404, 410];
/** Statuses of an `error` event after which a new connection may do better. */
const PASSING = [408, 502, 503, 504];

/**
 * What `watch` returns: pages as they come, for one loop at a time. It connects when the first page
 * is asked for.
 *
 * A loop that was left, or that threw, may be begun again: it goes on behind the page that was
 * handed out last.
 */
export class Watch<D = any> implements AsyncIterable<WatchPage<D>>, AsyncDisposable {
  readonly #session: Session;
  readonly #places: Places<D>;
  readonly #options: { [name: string]: unknown };
  readonly #connection: EventConnection;
  readonly #closing: Deadline;
  readonly #isLenient: boolean | undefined;
  #watched: WatchSession | undefined;
  /** The id that the stream is opened with: what arrived last. */
  #id: string | undefined;
  readonly #pending: WatchPage<D>[] = [];
  #isReposted = false;

  constructor(
    client: Connected,
    topics: WatchTopics,
    {
      from,
      from_ts,
      tail,
      partitions,
      cursor,
      lenient,
      on_connection,
      signal,
      ...options
    }: WatchOptions,
  ) {
    const { session } = client;
    this.#session = session;
    this.#places = new Places<D>(
      beginsOf(topics, { from, from_ts, tail }, partitions),
      parseCursor(cursor),
    );
    this.#options = options;
    this.#isLenient = lenient;
    this.#closing = new Deadline(signal);
    this.#connection = new EventConnection(session, this.#closing.signal, on_connection);
  }

  /**
   * Where to go on behind the page that was handed out last: keep it, and give it as `cursor` to
   * the next watch. Undefined before the first answer.
   */
  get cursor(): string | undefined {
    return formatCursor(this.#places.reached);
  }

  /**
   * Subscribe at once, so that a `tail` begins here and not with the first page that is asked for.
   */
  async subscribe(): Promise<this> {
    while (!this.#watched && !this.#places.isOver) await this.#post();
    return this;
  }

  /** End the connection; there are no more pages. */
  close(): void {
    this.#closing.abort(CLOSED);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchPage<D>, void, undefined> {
    try {
      for (;;) {
        this.#closing.signal.throwIfAborted();
        await this.subscribe();
        while (this.#pending.length > 0) yield this.#pending.shift()!;
        if (this.#places.isOver) return;
        yield* this.#stream();
        if (this.#places.isOver) return;
        await this.#reconnect();
      }
    } catch (error) {
      if (error !== CLOSED) throw error;
    }
  }

  async #post(): Promise<void> {
    const call: Call = {
      method: "POST",
      path: "/v0/watch",
      signal: this.#closing.signal,
      // A topic that was deleted meanwhile is told by a page, and is no error.
      params: { lenient: this.#isLenient || this.#places.hasBegun || undefined },
      body: { ...this.#options, ...this.#places.wanted },
    };
    const outcome = await this.#session.send(call);
    if (errorOfOutcome(outcome))
      return this.#connection.pauseAfter(outcome, isWorthRepeating(call, outcome));
    const watched: WatchSession = this.#session.read(call, outcome);
    const { pages, isStale } = this.#places.begin(watched.topics);
    this.#pending.push(...pages);
    this.#id = watched.cursor;
    this.#watched = isStale ? undefined : watched;
  }

  get #streamCall(): Call {
    return {
      method: "GET",
      path: path`/v0/watch/${this.#watched!.wid}`,
      headers: { accept: "text/event-stream", "last-event-id": this.#id },
    };
  }

  async *#stream(): AsyncGenerator<WatchPage<D>, void, undefined> {
    const idle_ms = 2 * this.#watched!.heartbeat_ms + SLACK_MS;
    this.#places.reopen();
    for await (const event of this.#connection.events(this.#streamCall, idle_ms)) {
      this.#isReposted = false;
      if (event.kind === "error" && this.#hasEnded(event)) return;
      const page =
        event.kind === ""
          ? undefined
          : this.#places.take(event.kind, this.#session.decode(event.data));
      // What the stream is resumed with covers the page that is handed out now.
      if (event.id !== undefined) this.#id = event.id;
      if (page) yield page;
      if (this.#places.isOver) return;
    }
  }

  /** Take an `error` event; throws it where a new connection would meet it again. */
  #hasEnded(event: ServerEvent): boolean {
    const error = this.#connection.errorOf(event);
    if (!error) return false;
    if (FORGOTTEN.includes(error.status)) this.#watched = undefined;
    else if (!PASSING.includes(error.status)) throw error;
    return true;
  }

  async #reconnect(): Promise<void> {
    const { outcome, status } = this.#connection;
    if (!FORGOTTEN.includes(status)) return this.#connection.pause();
    this.#watched = undefined;
    // A new session is posted at once, and after a pause where it was forgotten, too.
    if (this.#isReposted) await this.#connection.pauseAfter(outcome, true);
    this.#isReposted = true;
  }
}
