// `Schedule`: one schedule, by its name. Making one sends nothing.

import { list } from "./lists.js";
import type * as Models from "./models.js";
import type { Signalled } from "./models.js";
import { Resource, type Connected } from "./resource.js";

/** What appends a record by the clock (§14). */
export class Schedule extends Resource {
  protected override get root(): string {
    return "/v0/schedules";
  }

  /** All schedules of a prefix, or of a topic (§14.3). */
  static list(
    client: Connected,
    { signal, ...params }: Signalled<{ prefix?: string; topic?: string }> = {},
  ): AsyncGenerator<Models.ScheduleSummary, void, undefined> {
    return list(client.session, { path: "/v0/schedules", params, signal }, "schedules");
  }

  /** Create or replace it; one of `cron`, `every_ms` and `at` says when its ticks are (§14.1). */
  put({ signal, ...body }: Signalled<Models.ScheduleOptions>): Promise<Models.SchedulePut> {
    return this.call("PUT", "", { body, signal });
  }

  /** What it appends, and when (§14.2). */
  state({ signal }: Signalled = {}): Promise<Models.ScheduleState> {
    return this.call("GET", "", { signal });
  }

  /** Append a record now (§14.4). */
  run({ signal }: Signalled = {}): Promise<Models.ScheduleRun> {
    // Each attempt may append a record.
    return this.call("POST", "/run", { repeatable: false, signal });
  }

  /** It has no ticks until `resume` (§14.5). */
  pause({ signal }: Signalled = {}): Promise<Models.SchedulePaused> {
    return this.call("POST", "/pause", { signal });
  }

  /** It has ticks again (§14.5). */
  resume({ signal }: Signalled = {}): Promise<Models.SchedulePaused> {
    return this.call("POST", "/resume", { signal });
  }

  /** Remove it (§14.6). */
  delete({ signal }: Signalled = {}): Promise<Models.ScheduleDeleted> {
    return this.call("DELETE", "", { repeatable: false, signal });
  }
}
