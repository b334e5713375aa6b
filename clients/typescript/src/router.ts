// `Router`: one router, by its name. Making one sends nothing.

import { list } from "./lists.js";
import type {
  RouterDeleted,
  RouterOptions,
  RouterPut,
  RouterState,
  RouterSummary,
  Signalled,
} from "./models.js";
import { Resource, type Connected } from "./resource.js";

/** What copies the records of one topic to another (§6). */
export class Router extends Resource {
  protected override get root(): string {
    return "/v0/routers";
  }

  /** All routers of a prefix, a source, a destination (§6.3). */
  static list(
    client: Connected,
    { signal, ...params }: Signalled<{ prefix?: string; source?: string; dest?: string }> = {},
  ): AsyncGenerator<RouterSummary, void, undefined> {
    return list(client.session, { path: "/v0/routers", params, signal }, "routers");
  }

  /** Create the router; the same router again changes nothing (§6.1). */
  put({ signal, ...body }: Signalled<RouterOptions>): Promise<RouterPut> {
    return this.call("PUT", "", { body, signal });
  }

  /** Its ends, and how far it is (§6.2). */
  state({ signal }: Signalled = {}): Promise<RouterState> {
    return this.call("GET", "", { signal });
  }

  /** Remove it (§6.4); the copies that it made stay. */
  delete({ signal }: Signalled = {}): Promise<RouterDeleted> {
    return this.call("DELETE", "", { repeatable: false, signal });
  }
}
