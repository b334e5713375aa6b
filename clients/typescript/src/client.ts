// `Client`: one server, what it has, and how requests are sent to it.
//
// Of the classes that are made of a client it knows `Topic` and `Watch` alone, so that a bundler
// leaves the others out of a page that does not use them.

import { list } from "./lists.js";
import type { Signalled, TopicSummary } from "./models.js";
import { RETRY, type Retry } from "./retry.js";
import { given, Session } from "./session.js";
import { parseTarget } from "./target.js";
import { Topic } from "./topic.js";
import { Watch, type WatchOptions } from "./watch.js";
import type { WatchTopics } from "./places.js";

/** Options of a client. */
export interface ClientOptions {
  /** Sent as a bearer token; by default `TOPICS_API_KEY` of Node's environment, if that is set. */
  api_key?: string;
  /** How long the server may send nothing, in milliseconds (30,000); a long poll adds its wait. */
  timeout_ms?: number;
  /** How patient to be; `{ for_ms: 0 }` tries once. */
  retry?: Partial<Retry>;
  /**
   * Integers beyond 2^53 in answers are a `bigint`, exactly (false: they are rounded, as by
   * `JSON.parse`).
   */
  bigint?: boolean;
  /** What sends the requests (the global `fetch`). */
  fetch?: typeof fetch;
}

/**
 * A client of one server. Every call that does not succeed rejects with a `TopicsError`, or with
 * the reason of its `signal`. A call that the server refused for now (429, 503), or whose
 * connection broke, is sent again until `retry` ends. An append carries an idempotency key, so that
 * it takes effect once however often it is sent.
 */
export class Client {
  /** @internal */
  readonly session: Session;

  /**
   * @param url the server; by default `TOPICS_URL` of Node's environment, else the origin of the
   *     page, else http://127.0.0.1:4000
   */
  constructor(url?: string | URL, options: ClientOptions = {}) {
    const { api_key, timeout_ms = 30_000, retry, bigint } = options;
    this.session = new Session({
      target: parseTarget(url, api_key),
      timeout_ms,
      bigint,
      retry: { ...RETRY, ...given({ ...retry }) },
      // Browsers let `fetch` be called on nothing but the window.
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    });
  }

  /** A topic by its name. */
  topic<D = any>(name: string): Topic<D> {
    return new Topic<D>(this, name);
  }

  /** The records of many topics as they are appended, over one connection (§7). */
  watch<D = any>(topics: WatchTopics, options: WatchOptions = {}): Watch<D> {
    return new Watch<D>(this, topics, options);
  }

  /** All topics whose name begins with `prefix`, in the order of their names (§1.3). */
  topics({ signal, ...params }: Signalled<{ prefix?: string }> = {}): AsyncGenerator<
    TopicSummary,
    void,
    undefined
  > {
    return list(this.session, { path: "/v0/topics", params, signal }, "topics");
  }
}
