// The objects of the API, by the names that it gives them; made of the server's own document.

import type { components } from "./openapi.js";

type Schemas = components["schemas"];

/** An object whose members that the server adds are named without their `$`. */
type Plain<T> = { [Name in keyof T as Name extends `$${infer Rest}` ? Rest : Name]: T[Name] };
type With<T, D> = Omit<T, "data"> & { data: D };

/** Options of a call, and a signal that ends it: the call rejects with the signal's reason. */
export type Signalled<T = {}> = T & { signal?: AbortSignal };

/**
 * A record as it was read: `seq`, `ts` (milliseconds since the epoch), `data`, and perhaps `tag`,
 * `node`, `meta`.
 */
export type TopicRecord<D = any> = With<Plain<Schemas["TopicRecord"]>, D>;
/**
 * A record to append, where a bare value is not enough; of a queue, with the options of its job
 * (§2).
 */
export type NewRecord<D = any> = With<Schemas["RecordBody"], D>;
/** What `append` says of its value besides the data. */
export type RecordOptions = Omit<NewRecord, "data">;
/** A job as it was claimed: a record and its lease. */
export type Job<D = any> = With<Plain<Schemas["Job"]>, D>;
/** A tag, or `["tag", "Eq" | "Glob", pattern]` (§5). */
export type TagMatch = string | ["tag", "Eq" | "Glob", string];

/** A body with the tags that it matches as they are written. */
type Matching<T> = Omit<T, "match"> & { match?: TagMatch | null };
/** A body without the jobs that it names. */
type OfJobs<T> = Omit<T, "seqs" | "lease_ids">;

/**
 * Records that were lost before this reader saw them: `gap_from` to `gap_to`, both inclusive
 * (§3.3).
 */
export type Tombstone = Omit<Schemas["TombstoneEvent"], "topic" | "partition">;
export type Appended = Schemas["Appended"] & { seqs: number[] };
export type Performance = Schemas["Performance"];

export type TopicConfig = Schemas["TopicConfig"];
export type TopicOptions = Schemas["ConfigBody"];
export type TopicPut = Schemas["TopicPut"];
export type TopicState = Schemas["TopicState"];
export type TopicSummary = Schemas["TopicSummary"];
export type TopicDeleted = Schemas["TopicDeleted"];
export type RecordsDeleted = Schemas["RecordsDeleted"];
export type Purged = Schemas["Purged"];

export type DeleteOptions = Matching<Schemas["DeleteBody"]>;
export type PurgeOptions = Schemas["PurgeBody"];

export type ClaimOptions = Schemas["ClaimBody"];
export type AckOptions = OfJobs<Schemas["AckBody"]>;
export type NackRequest = OfJobs<Schemas["NackBody"]>;
export type ExtendOptions = OfJobs<Schemas["ExtendBody"]>;
export type RedriveOptions = Matching<Omit<Schemas["RedriveBody"], "to">>;

export type Claimed<D = any> = Omit<Schemas["Claimed"], "claimed"> & { claimed: Job<D>[] };
export type Acked = Schemas["Acked"];
export type Nacked = Schemas["Nacked"];
export type Extended = Schemas["Extended"];
export type JobItem = Schemas["JobItem"];
export type JobAnswer = Schemas["JobAnswer"];
export type JobsChanged = Schemas["JobsChanged"];
export type Redriven = Schemas["Redriven"];

export type RouterOptions = Omit<Schemas["RouterBody"], "filter"> & { filter?: TagMatch | null };
export type RouterPut = Schemas["RouterPut"];
export type RouterState = Schemas["RouterState"];
export type RouterSummary = Schemas["RouterSummary"];
export type RouterDeleted = Schemas["RouterDeleted"];

export type ScheduleOptions = Schemas["ScheduleBody"];
export type SchedulePut = Schemas["SchedulePut"];
export type ScheduleState = Schemas["ScheduleState"];
export type ScheduleSummary = Schemas["ScheduleSummary"];
export type ScheduleRun = Schemas["ScheduleRun"];
export type SchedulePaused = Schemas["SchedulePaused"];
export type ScheduleDeleted = Schemas["ScheduleDeleted"];

export type GroupState = Schemas["GroupState"];
export type GroupSummary = Schemas["GroupSummary"];
export type GroupOffset = Schemas["GroupOffset"];
export type GroupDeleted = Schemas["GroupDeleted"];
export type Offset = Schemas["OffsetBody"];
export type OffsetsCommitted = Schemas["OffsetsCommitted"];

export type Health = Schemas["Health"];
export type Ready = Schemas["Ready"];
export type Limits = Schemas["LimitsInForce"];
export type Metrics = Schemas["Metrics"];
export type Cluster = Schemas["Cluster"];
export type ConnectedClient = Schemas["ConnectedClient"];

/** A watch session as it was made, and what a WebSocket says of a subscription. */
export type WatchSession = Schemas["Session"];
export type WatchOptionsOnWire = Omit<Schemas["WatchBody"], "topics" | "cursor" | "match">;
export type RecordFrame = Schemas["RecordEvent"];
export type TombstoneFrame = Schemas["TombstoneEvent"];

/** A record, or a job, of an answer: the same members, without the dollars. */
export function plain<T>(record: { [name: string]: unknown }): T {
  const made: { [name: string]: unknown } = {};
  for (const name in record) made[name[0] === "$" ? name.slice(1) : name] = record[name];
  return made as T;
}

/** A list of records of an answer, without the dollars. */
export function plainAll<T>(records: any[]): T[] {
  return records.map((record) => plain<T>(record));
}
