// `Group`: one group of consumers, by its name. Making one sends nothing.

import type { Client } from "./client.js";
import { list } from "./lists.js";
import type {
  GroupDeleted,
  GroupOffset,
  GroupState,
  GroupSummary,
  Offset,
  OffsetsCommitted,
  Signalled,
} from "./models.js";
import { path, type Session } from "./session.js";

/** A name under which the server keeps how far its readers are (§13). */
export class Group {
  readonly #session: Session;

  constructor(
    client: Client,
    readonly name: string,
  ) {
    this.#session = client.session;
  }

  /** All groups whose name begins with `prefix` (§13.1). */
  static list(
    client: Client,
    { signal, ...params }: Signalled<{ prefix?: string }> = {},
  ): AsyncGenerator<GroupSummary, void, undefined> {
    return list(client.session, { path: "/v0/groups", params, signal }, "groups");
  }

  /** Store the last sequence number that is done with, of topics or their partitions (§13.3). */
  commit(offsets: Offset[], { signal }: Signalled = {}): Promise<OffsetsCommitted> {
    return this.#session.do({
      method: "POST",
      path: `${this.#path}/commit`,
      body: { offsets },
      signal,
    });
  }

  /** How far it is in each partition: give `seq` as `from` of a read (§13.2). */
  offsets({ signal }: Signalled = {}): AsyncGenerator<GroupOffset, void, undefined> {
    return list(this.#session, { path: this.#path, signal }, "offsets");
  }

  /** Its members, and its first offsets (§13.2). */
  state({ signal }: Signalled = {}): Promise<GroupState> {
    return this.#session.do({ method: "GET", path: this.#path, signal });
  }

  /** Remove it with its offsets; `Conflict` where it has members (§13.4). */
  delete({ signal }: Signalled = {}): Promise<GroupDeleted> {
    return this.#session.do({ method: "DELETE", path: this.#path, repeatable: false, signal });
  }

  get #path(): string {
    return path`/v0/groups/${this.name}`;
  }
}
