// `Socket`: a WebSocket of the server, over any number of connections (§7.7).
//
// Owns the connection, and the commands that wait for their replies. After a break, subscriptions
// go on where they were, and commands are sent again; a publish has an idempotency key, and so
// takes effect once.

import { appended, encodeRecord, newKey, type BatchOptions } from "./batches.js";
import { PayloadTooLarge, socketError, unreachable, type TopicsError } from "./errors.js";
import { encode } from "./json.js";
import type { Appended, NewRecord, Signalled } from "./models.js";
import { beginsOf, parseCursor, Places, type WatchTopics } from "./places.js";
import { Attempts } from "./retry.js";
import type { Connected } from "./resource.js";
import { given, type Session } from "./session.js";
import { PASSING, SocketWatch, type SocketWatchOptions } from "./socket-watch.js";
import { onAbort, Settled, sleep } from "./waiting.js";

/** Options of a socket. */
export interface SocketOptions {
  /**
   * Makes the connection; by default the global `WebSocket` does. Node before 22 has none: give
   * `(url, headers) => new WebSocket(url, { headers })` with that of the package `ws`.
   *
   * @param headers the key; empty without one. A browser's `WebSocket` cannot send them.
   */
  connect?: (url: string, headers: { [name: string]: string }) => WebSocket;
}

/** Largest message that a server takes, in bytes (§7.7). */
const MESSAGE_BYTES_MAX = 8 << 20;
/** Why a server ends a connection whose message is larger than it takes (RFC 6455 §7.4.1). */
const TOO_LARGE = 1009;
/** How often the server is asked for a sign of life, and how long it may take, in milliseconds. */
const PING_MS = 15_000;

/** A command that waits for its reply. */
interface Command {
  text: string;
  /**
   * Sent again on the next connection, and after a refusal that passes; else it fails with these.
   */
  isKept: boolean;
  /** Called with the reply before the message behind it is looked at. */
  take: (reply: any) => void;
  reply: Settled<any>;
  attempts: Attempts;
}

/** One WebSocket of a client's server. It connects when it is used. */
export class Socket implements AsyncDisposable {
  #socket: WebSocket | undefined;
  #isOpen = false;
  #isClosed = false;
  #lastId = 0;
  #attempts: Attempts | undefined;
  #pinging: ReturnType<typeof setInterval> | undefined;
  #hasHeard = true;
  readonly #commands = new Map<number, Command>();
  readonly #watches = new Set<SocketWatch<any>>();

  readonly #session: Session;
  readonly #options: SocketOptions;

  constructor(client: Connected, options: SocketOptions = {}) {
    this.#options = options;
    this.#session = client.session;
  }

  /**
   * Append records as one atomic batch: all of them or none. Where its signal is aborted, whether
   * they are in the topic is unknown.
   */
  async publish<D>(
    topic: string,
    records: Iterable<NewRecord<D>>,
    options: Signalled<BatchOptions> = {},
  ): Promise<Appended> {
    const { idempotency_key = newKey(), signal, ...rest } = options;
    const encoded = Array.from(records, ({ data, ...of }) => encodeRecord(data, of));
    const fields = encode(given({ topic, idempotency_key, return_seqs: false, ...rest }));
    const answer = await this.command(
      "publish",
      `${fields.slice(1, -1)},"records":[${encoded.join()}]`,
      idempotency_key != null,
      signal,
    );
    this.#session.position.note(answer.position);
    return appended(answer);
  }

  /**
   * The records of topics as they are appended; one watch at a time for each topic. A watch whose
   * pages are not taken leaves its topics meanwhile, so that no more than some pages wait in
   * memory.
   */
  watch<D = any>(topics: WatchTopics, options: Signalled<SocketWatchOptions> = {}): SocketWatch<D> {
    const { cursor, from, from_ts, tail, partitions, signal, ...wire } = options;
    signal?.throwIfAborted();
    const begins = beginsOf(topics, { from, from_ts, tail }, partitions);
    for (const other of this.#watches) {
      const taken = Object.keys(begins).find((topic) => other.topics.includes(topic));
      if (taken !== undefined)
        throw new TypeError(`topic "${taken}" is watched over this socket already`);
    }
    this.#connect();
    const places = new Places<D>(begins, parseCursor(cursor));
    const watch = new SocketWatch<D>(
      this,
      this.#session,
      places,
      Object.keys(begins),
      wire,
      signal,
    );
    this.#watches.add(watch);
    if (this.#isOpen) watch.subscribe();
    return watch;
  }

  /** The server's time, milliseconds since the epoch. */
  async ping({ signal }: Signalled = {}): Promise<number> {
    return (await this.command("ping", "", true, signal)).ts;
  }

  /** End the connection: watches end, and commands without a reply reject. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#fail(unreachable("the socket was closed"));
    this.#socket?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // ---------------------------------------------------------------- what a watch asks

  /** @internal Send a command; its reply. */
  command(
    op: string,
    fields: string,
    isKept: boolean,
    signal?: AbortSignal,
    take = (_: any): void => {},
  ): Promise<any> {
    signal?.throwIfAborted();
    this.#connect();
    const id = ++this.#lastId;
    const text = `{"op":"${op}","request_id":${id}${fields && ","}${fields}}`;
    // A character has one to three bytes.
    if (3 * text.length > MESSAGE_BYTES_MAX && bytesOf(text) > MESSAGE_BYTES_MAX) throw tooLarge();
    const reply = new Settled<any>();
    const attempts = new Attempts(this.#session.options.retry);
    this.#commands.set(id, { text, isKept, take, reply, attempts });
    if (this.#isOpen) this.#socket!.send(text);
    const forget = onAbort(signal, () => {
      this.#commands.delete(id);
      reply.reject(signal!.reason);
    });
    return reply.promise.finally(forget);
  }

  /** @internal A watch has ended. */
  left(watch: SocketWatch<any>): void {
    this.#watches.delete(watch);
  }

  // ---------------------------------------------------------------- the connection

  /** Connect, unless there is a connection, or one that is being made. */
  #connect(): void {
    if (this.#isClosed) throw new TypeError("the socket is closed");
    if (this.#socket !== undefined) return;
    const { url, headers } = this.#session.options.target;
    const { connect = connectGlobally } = this.#options;
    const socket = connect(
      `${url.replace(/^http/, "ws")}/v0/ws?handling=strict`,
      given({ authorization: headers.authorization }) as {},
    );
    this.#socket = socket;
    socket.addEventListener("open", () => this.#opened());
    socket.addEventListener("message", ({ data }) => this.#take(String(data)));
    // Its close follows, and says enough.
    socket.addEventListener("error", () => {});
    socket.addEventListener(
      "close",
      ({ code }) => {
        if (code === TOO_LARGE) this.#refuseLongest();
        this.#lost().catch((error) => this.#fail(error));
      },
      { once: true },
    );
  }

  #opened(): void {
    this.#isOpen = true;
    for (const { text } of this.#commands.values()) this.#socket!.send(text);
    for (const watch of this.#watches) watch.subscribe();
    this.#hasHeard = true;
    this.#pinging = setInterval(() => this.#check(), PING_MS);
  }

  /** Ask for a sign of life, or end a connection that gave none. */
  #check(): void {
    if (!this.#hasHeard) return this.#socket!.close();
    this.#hasHeard = false;
    this.#socket!.send('{"op":"ping"}');
  }

  /** The server ended the connection for a message's length, and would end the next one, too. */
  #refuseLongest(): void {
    const [found] = [...this.#commands].sort(([, a], [, b]) => b.text.length - a.text.length);
    if (found === undefined) return;
    this.#commands.delete(found[0]);
    found[1].reply.reject(tooLarge());
  }

  async #lost(): Promise<void> {
    clearInterval(this.#pinging);
    this.#isOpen = false;
    const why = unreachable(`${this.#session.options.target.url}: the WebSocket was closed`);
    for (const [id, { isKept, reply }] of this.#commands) {
      if (isKept) continue;
      this.#commands.delete(id);
      reply.reject(why);
    }
    for (const watch of this.#watches) watch.lost();
    if (this.#commands.size + this.#watches.size === 0) this.#socket = this.#attempts = undefined;
    else await this.#reconnect(why);
  }

  async #reconnect(why: TopicsError): Promise<void> {
    this.#attempts ??= new Attempts(this.#session.options.retry);
    const pause_ms = this.#attempts.pause();
    if (pause_ms !== undefined) await sleep(pause_ms);
    this.#socket = undefined;
    if (this.#isClosed) return;
    if (pause_ms !== undefined) return this.#connect();
    this.#attempts = undefined;
    this.#fail(why);
  }

  #fail(why: TopicsError): void {
    for (const { reply } of this.#commands.values()) reply.reject(why);
    this.#commands.clear();
    for (const watch of this.#watches) watch.fail(why);
  }

  // ---------------------------------------------------------------- messages

  #take(text: string): void {
    this.#hasHeard = true;
    this.#attempts = undefined;
    const message = this.#session.decode(text);
    const command = this.#commands.get(message.request_id);
    if (command !== undefined) this.#replied(message, command);
    // A command that its signal has ended.
    else if (message.request_id !== undefined) return;
    else if (message.op === "error") this.#failed(message);
    else for (const watch of this.#watches) watch.take(message);
  }

  #replied(message: any, command: Command): void {
    if (message.op !== "error") {
      this.#commands.delete(message.request_id);
      command.take(message);
      return command.reply.resolve(message);
    }
    const error = socketError(message, message.retry_after_ms);
    const isWorth = command.isKept && PASSING.includes(error.status);
    const pause_ms = isWorth ? command.attempts.pause(error.retry_after_ms) : undefined;
    if (pause_ms === undefined) {
      this.#commands.delete(message.request_id);
      return command.reply.reject(error);
    }
    void sleep(pause_ms).then(
      () =>
        this.#isOpen && this.#commands.has(message.request_id) && this.#socket!.send(command.text),
    );
  }

  /**
   * An error that answers no command: of some topics, or of the connection, which the server ends
   * then.
   */
  #failed(message: any): void {
    const error = socketError(message);
    if (PASSING.includes(error.status)) return this.#socket!.close();
    const topics: string[] = message.topics ?? [message.topic];
    for (const watch of this.#watches)
      if (watch.topics.some((topic) => topics.includes(topic))) watch.fail(error);
  }
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

function tooLarge(): PayloadTooLarge {
  return new PayloadTooLarge("a message of more bytes than the server takes", {
    code: "payload_too_large",
    status: 413,
  });
}

function connectGlobally(url: string, headers: { [name: string]: string }): WebSocket {
  if (globalThis.WebSocket === undefined)
    throw new TypeError("there is no WebSocket here: give `connect`");
  if (Object.keys(headers).length === 0) return new WebSocket(url);
  if (globalThis.document !== undefined)
    throw new TypeError("a page cannot send a key over a WebSocket: use `watch`");
  return new WebSocket(url, { headers } as any);
}
