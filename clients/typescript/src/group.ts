// `Group`: one group of consumers, by its name. Making one sends nothing.

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
import { Resource, type Connected } from "./resource.js";

/** A name under which the server keeps how far its readers are (§13). */
export class Group extends Resource {
  protected override get root(): string {
    return "/v0/groups";
  }

  /** All groups whose name begins with `prefix` (§13.1). */
  static list(
    client: Connected,
    { signal, ...params }: Signalled<{ prefix?: string }> = {},
  ): AsyncGenerator<GroupSummary, void, undefined> {
    return list(client.session, { path: "/v0/groups", params, signal }, "groups");
  }

  /** Store the last sequence number that is done with, of topics or their partitions (§13.3). */
  commit(offsets: Offset[], { signal }: Signalled = {}): Promise<OffsetsCommitted> {
    return this.call("POST", "/commit", { body: { offsets }, signal });
  }

  /** How far it is in each partition: give `seq` as `from` of a read (§13.2). */
  offsets({ signal }: Signalled = {}): AsyncGenerator<GroupOffset, void, undefined> {
    return list(this.session, { path: this.path(), signal }, "offsets");
  }

  /** Its members, and its first offsets (§13.2). */
  state({ signal }: Signalled = {}): Promise<GroupState> {
    return this.call("GET", "", { signal });
  }

  /** Remove it with its offsets; `Conflict` where it has members (§13.4). */
  delete({ signal }: Signalled = {}): Promise<GroupDeleted> {
    return this.call("DELETE", "", { repeatable: false, signal });
  }
}
