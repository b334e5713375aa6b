// Reads: one page of a topic's records, and pages one after the other.

import { PartitionRequired } from "./errors.js";
import { plainAll } from "./models.js";
import type { Signalled, TagMatch, Tombstone, TopicRecord } from "./models.js";
import type { Session } from "./session.js";
import { path } from "./session.js";

/** The longest long poll that a server grants, in milliseconds (§3). */
const WAIT_MS_MAX = 30_000;
/** Records of one page: the most that a server grants by default (§3). */
export const PAGE_RECORDS = 1000;

/** Where a read begins, and what it wants of each record. */
export interface ReadPlace {
  /**
   * Exclusive, the sequence number that was dealt with last; 0, the default, is before the
   * earliest.
   */
  from?: number;
  /** In place of `from`: the first record at or after this time, milliseconds since the epoch. */
  from_ts?: number;
  /** Keep only records whose tag matches (§5). */
  match?: TagMatch;
  /** Leave out records of this writer, or of these. */
  node?: string | string[];
  /** Fill `tag` of the records (false). */
  include_tags?: boolean;
  /** Fill `meta` of the records (true). */
  include_meta?: boolean;
  /** The instance of the topic that `from` belongs to, from an earlier page. */
  epoch?: string;
  /** Of the topic that is read; where it has one, that. */
  partition?: number;
}

/** Options of one page. */
export interface PageOptions extends ReadPlace {
  /** Most records (1000). */
  limit?: number;
  /** Where there is no record yet, wait for one, at most 30,000 ms (0). */
  wait_ms?: number;
}

/** Options of a read of many pages. */
export interface ReadOptions extends ReadPlace {
  /** Do not end at the head but wait for more, until the loop is left (false). */
  follow?: boolean;
  /**
   * How long the server holds an answer back while there is no record; 30,000 when following, else
   * 0.
   */
  wait_ms?: number;
  /** End after so many records. */
  limit?: number;
  /** Records of one page (1000). */
  page_records?: number;
}

/** Records of a topic in order, and where to go on. */
export interface Page<D = any> {
  /** The topic's partition that was read; 0 where it has one. */
  partition: number;
  /** May be empty, also before the head: records that were left out move the cursor, too (§3.2). */
  records: TopicRecord<D>[];
  /** The cursor behind this page: give it as `from` of the next read. */
  next: number;
  /** What was lost between the cursor and the records; null: nothing was. */
  tombstone: Tombstone | null;
  head_seq: number;
  earliest_seq: number;
  /** Whether `next` is the head. */
  caught_up: boolean;
  /** Sequence numbers between `next` and the head. */
  lag: number;
  /** The instance of the topic: another one after it was deleted and made again. */
  epoch: string;
}

/** One page of records after `from`. */
export async function readPage<D>(
  session: Session,
  topic: string,
  { from, signal, limit = PAGE_RECORDS, ...rest }: Signalled<PageOptions>,
): Promise<Page<D>> {
  const {
    records,
    next_from_seq: next,
    topic: _,
    performance: __,
    ...answer
  } = await session.do({
    method: "POST",
    path: path`/v0/topics/${topic}/diff`,
    signal,
    body: { ...rest, from_seq: from, limit },
    wait_ms: Math.min(rest.wait_ms ?? 0, WAIT_MS_MAX),
  });
  return {
    ...answer,
    partition: rest.partition ?? 0,
    records: plainAll<TopicRecord<D>>(records),
    next,
  };
}

/**
 * Pages from a cursor on. Without `follow` the last one ends at the head as the first one saw it,
 * so that a busy writer cannot keep the read going. Pages after the first name the topic's epoch,
 * so that a topic that is deleted and made again is a tombstone and no silent jump (§3.3).
 *
 * A topic with several partitions is read whole, one after the other, if no cursor and no partition
 * is given; and not to follow, which would wait at the first.
 */
export async function* readPages<D>(
  session: Session,
  topic: string,
  options: Signalled<ReadOptions>,
): AsyncGenerator<Page<D>, void, undefined> {
  const { from, epoch, partition, follow, wait_ms, limit } = options;
  try {
    yield* readPartition<D>(session, topic, options);
  } catch (error) {
    const isWhole = !(from || epoch || follow || wait_ms) && partition === undefined;
    if (!(error instanceof PartitionRequired) || !isWhole) throw error;
    const { signal } = options;
    const call = {
      method: "GET",
      path: path`/v0/topics/${topic}`,
      params: { touch: false },
      signal,
    } as const;
    let left = limit;
    for (const each of (await session.do(call)).partitions ?? [{ partition: 0 }]) {
      const own = { ...options, partition: each.partition, limit: left };
      for await (const page of readPartition<D>(session, topic, own)) {
        if (left !== undefined) left -= page.records.length;
        yield page;
      }
      if (left === 0) return;
    }
  }
}

async function* readPartition<D>(
  session: Session,
  topic: string,
  {
    follow,
    wait_ms = follow ? WAIT_MS_MAX : 0,
    limit,
    page_records = PAGE_RECORDS,
    ...place
  }: Signalled<ReadOptions>,
): AsyncGenerator<Page<D>, void, undefined> {
  let left = limit ?? Infinity;
  let end: number | undefined;
  while (left > 0) {
    const page = await readPage<D>(session, topic, {
      ...place,
      wait_ms,
      limit: Math.min(page_records, left),
    });
    place = { ...place, from: page.next, from_ts: undefined, epoch: page.epoch };
    left -= page.records.length;
    end ??= page.head_seq;
    yield page;
    if (!follow && (page.caught_up || page.next >= end)) return;
  }
}
