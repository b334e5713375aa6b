// `Router`: one router, by its name. Making one sends nothing.

import type { Client } from "./client.js";
import { list } from "./lists.js";
import type {
  RouterDeleted,
  RouterOptions,
  RouterPut,
  RouterState,
  RouterSummary,
  Signalled,
} from "./models.js";
import { path, type Session } from "./session.js";

/** What copies the records of one topic to another (§6). */
export class Router {
  readonly #session: Session;

  constructor(
    client: Client,
    readonly name: string,
  ) {
    this.#session = client.session;
  }

  /** All routers of a prefix, a source, a destination (§6.3). */
  static list(
    client: Client,
    { signal, ...params }: Signalled<{ prefix?: string; source?: string; dest?: string }> = {},
  ): AsyncGenerator<RouterSummary, void, undefined> {
    return list(client.session, { path: "/v0/routers", params, signal }, "routers");
  }

  /** Create the router; the same router again changes nothing (§6.1). */
  put({ signal, ...body }: Signalled<RouterOptions>): Promise<RouterPut> {
    return this.#session.do({ method: "PUT", path: this.#path, body, signal });
  }

  /** Its ends, and how far it is (§6.2). */
  state({ signal }: Signalled = {}): Promise<RouterState> {
    return this.#session.do({ method: "GET", path: this.#path, signal });
  }

  /** Remove it (§6.4); the copies that it made stay. */
  delete({ signal }: Signalled = {}): Promise<RouterDeleted> {
    return this.#session.do({ method: "DELETE", path: this.#path, repeatable: false, signal });
  }

  get #path(): string {
    return path`/v0/routers/${this.name}`;
  }
}
