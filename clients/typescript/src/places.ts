// `Places`: how far a watch was handed out, in each partition of its topics.
//
// Owns the step from a frame (§7.5) to a page, and the positions after it; does no I/O. Invariant:
// the positions cover exactly the pages that were handed out, so that no record comes twice, and
// none is missing without a tombstone.

import { plainAll } from "./models.js";
import type {
  RecordFrame,
  TagMatch,
  Tombstone,
  TombstoneFrame,
  TopicRecord,
  WatchSession,
} from "./models.js";
import { given } from "./session.js";

/** Where a watch begins in a topic, and which of its records it wants. */
export interface Begin {
  /**
   * Exclusive, the sequence number that was dealt with last; 0, the default, is before the
   * earliest.
   */
  from?: number;
  /** In place of `from`: the first record at or after this time, milliseconds since the epoch. */
  from_ts?: number;
  /** Begin at the head: only what comes from now on. */
  tail?: boolean;
  /** Keep only records whose tag matches (§5). */
  match?: TagMatch;
  /** Leave out records of this writer, or of these. */
  node?: string | string[];
  /** Of a topic with several, only these; by default all, and those that it gets later. */
  partitions?: number[];
}

/** A topic's name, several, or names each with its beginning; a number is a `from`. */
export type WatchTopics = string | string[] | { [topic: string]: number | Begin | undefined };

/** What a watch hands out: records of one topic in order, or a loss, or the topic's end. */
export interface WatchPage<D = any> {
  topic: string;
  /** Which one of the topic; 0 where it has one. */
  partition: number;
  /** Empty where the page is a loss or an end. */
  records: TopicRecord<D>[];
  /** What was lost in place of records; null: nothing was. */
  tombstone: Tombstone | null;
  /** The topic was deleted; no page of it follows. */
  gone: boolean;
  /** The cursor of the partition behind this page. */
  next: number;
}

/** Stands between a topic and the number of its partition, in positions (§7.2). */
const MARK = "#";

interface Place {
  topic: string;
  partition: number;
  seq: number;
  epoch?: string;
}

type Position = { from_seq: number; earliest_seq: number; head_seq: number; epoch: string };

export class Places<D> {
  readonly #places = new Map<string, Place>();
  /** Places of which the present stream has said that nothing more comes. */
  readonly #ended = new Set<string>();
  /** There was an answer. */
  hasBegun?: boolean;

  readonly #begins: { [topic: string]: Begin };
  readonly #cursor: { [name: string]: number } | string | undefined;

  /**
   * @param begins of each topic that is watched
   * @param cursor positions by name, which override them
   */
  constructor(
    begins: { [topic: string]: Begin },
    cursor: { [name: string]: number } | string | undefined,
  ) {
    this.#begins = begins;
    this.#cursor = cursor;
  }

  /** All topics are gone. */
  get isOver(): boolean {
    return !!this.hasBegun && this.#places.size === 0;
  }

  /** Positions by name, as a cursor of the API (§7.2); undefined before the first answer. */
  get reached(): { [name: string]: number } | string | undefined {
    if (!this.hasBegun) return this.#cursor;
    return Object.fromEntries(Array.from(this.#places, ([name, { seq }]) => [name, seq]));
  }

  /**
   * What a session, or a subscription, asks for: the topics that are not gone, and where to go on.
   */
  get wanted(): {
    topics: { [topic: string]: object };
    cursor: { [name: string]: number } | string | undefined;
  } {
    const topics: { [topic: string]: object } = {};
    for (const [topic, { from, from_ts, tail, ...begin }] of Object.entries(this.#begins)) {
      const start = this.hasBegun ? {} : { from_seq: from, from_ts, tail };
      if (!this.hasBegun || this.#has(topic)) topics[topic] = given({ ...begin, ...start });
    }
    return { topics, cursor: this.reached };
  }

  /**
   * Take the answer of a new session. What it does not know of the old one is told by pages: topics
   * that are gone, and those that were deleted and created again, which are read from their start.
   *
   * @returns the pages, and whether the session is of no use, because its cursor belongs to an old
   *     instance
   */
  begin(topics: WatchSession["topics"]): { pages: WatchPage<D>[]; isStale: boolean } {
    const at = positions(topics as { [topic: string]: Position });
    const pages: WatchPage<D>[] = [];
    let isStale = false;
    this.#ended.clear();
    for (const [name, place] of this.#places) {
      const found = at.get(name);
      if (!found) pages.push(...this.#drop(name));
      else if (place.epoch !== undefined && place.epoch !== found.epoch) {
        isStale = true;
        place.seq = found.earliest_seq - 1;
        pages.push(page(place, { tombstone: recreated(found) }));
      } else place.seq = Math.max(place.seq, found.from_seq);
      place.epoch = found?.epoch;
    }
    for (const [name, { topic, partition, from_seq: seq, epoch }] of at) {
      if (!this.#places.has(name)) this.#places.set(name, { topic, partition, seq, epoch });
    }
    this.hasBegun = true;
    return { pages, isStale };
  }

  /** A new stream of the same session begins. */
  reopen(): void {
    this.#ended.clear();
  }

  /** Take a frame; the page that it is. It is to be handed out before the next one is taken. */
  take(kind: string, frame: any): WatchPage<D> | undefined {
    const place = this.#place(frame);
    if (!place) return undefined;
    if (kind === "record") return this.#records(place, frame);
    if (kind === "tombstone") return this.#tombstone(place, frame);
    // The two transports spell the rest of these differently.
    if (kind.startsWith("caught")) place.seq = Math.max(place.seq, frame.head_seq);
    if (kind.startsWith("topic")) return this.#gone(nameOf(place));
    return undefined;
  }

  #records(place: Place, { records, to_seq }: RecordFrame): WatchPage<D> | undefined {
    const { seq } = place;
    place.seq = Math.max(seq, to_seq);
    const more = plainAll<TopicRecord<D>>(records).filter((record) => record.seq > seq);
    return more.length === 0 ? undefined : page(place, { records: more });
  }

  #tombstone(
    place: Place,
    { topic: _, partition: __, ...tombstone }: TombstoneFrame,
  ): WatchPage<D> | undefined {
    const { seq } = place;
    if (tombstone.reason === "recreated") {
      // Its `gap_to` is the head of the new instance, whose records are still to come (§3.3).
      place.seq = tombstone.earliest_seq - 1;
      place.epoch = undefined;
      return page(place, { tombstone });
    }
    if (tombstone.gap_to <= seq) return undefined;
    place.seq = tombstone.gap_to;
    return page(place, { tombstone: after(seq, tombstone) });
  }

  /** A topic, or a partition, is gone: a page, where none of the topic's is left. */
  #gone(name: string): WatchPage<D> | undefined {
    this.#ended.add(name);
    return this.#drop(name)[0];
  }

  #drop(name: string): WatchPage<D>[] {
    const place = this.#places.get(name);
    this.#places.delete(name);
    if (!place || this.#has(place.topic)) return [];
    return [page(place, { gone: true })];
  }

  #has(topic: string): boolean {
    return [...this.#places.values()].some((place) => place.topic === topic);
  }

  /**
   * Where a frame's partition is; one that the topic got meanwhile joins. Undefined where the topic
   * is gone, also where one of its name exists again.
   */
  #place(frame: { topic: string; partition?: number }): Place | undefined {
    const name = nameOf(frame);
    const found = this.#places.get(name);
    if (found || this.#ended.has(name) || !this.#has(frame.topic)) return found;
    const place = { topic: frame.topic, partition: frame.partition ?? 0, seq: 0 };
    this.#places.set(name, place);
    return place;
  }
}

/**
 * The beginning of each topic: its own, completed by that of the watch.
 *
 * @param start a place, of topics that name none
 */
export function beginsOf(
  topics: WatchTopics,
  start: Begin,
  partitions?: number[],
): { [topic: string]: Begin } {
  if (typeof topics === "string") topics = [topics];
  const named = Array.isArray(topics)
    ? topics.map((topic): [string, Begin?] => [topic])
    : Object.entries(topics);
  const begins = named.map(([topic, begin]) => {
    // A cursor that a program has not yet is none.
    const own = given(typeof begin === "number" ? { from: begin } : { ...begin }) as Begin;
    const hasStart = "from" in own || "from_ts" in own || "tail" in own;
    return [topic, { partitions, ...(hasStart ? {} : start), ...own }];
  });
  return Object.fromEntries(begins);
}

/** A cursor as text for a program to keep: an id of the API (§7.4), for any number of topics. */
export function formatCursor(
  reached: { [name: string]: number } | string | undefined,
): string | undefined {
  if (typeof reached !== "object") return reached;
  // Names of topics are ASCII. Base64 in its form for URLs (RFC 4648 §5), where `=` is left out.
  const text = btoa(JSON.stringify(reached));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * The positions that a cursor says; the text itself where it is one that only the server can read.
 */
export function parseCursor(
  text: string | undefined,
): { [name: string]: number } | string | undefined {
  if (text === undefined) return undefined;
  try {
    const positions = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
    return Array.isArray(positions) ? text : positions;
  } catch {
    return text;
  }
}

/** What a partition is called in a cursor: the first is the topic itself. */
function nameOf({ topic, partition }: { topic: string; partition?: number }): string {
  return partition ? `${topic}${MARK}${partition}` : topic;
}

type Found = Position & { topic: string; partition: number };

/** Where a session stands in each partition. */
function positions(topics: {
  [topic: string]: Position & { partitions?: (Position & { partition: number })[] };
}): Map<string, Found> {
  const found = new Map<string, Found>();
  for (const [topic, position] of Object.entries(topics)) {
    for (const each of position.partitions ?? [{ ...position, partition: 0 }]) {
      found.set(nameOf({ topic, partition: each.partition }), { ...each, topic });
    }
  }
  return found;
}

function page<D>(place: Place, what: Partial<WatchPage<D>>): WatchPage<D> {
  const { topic, partition, seq: next } = place;
  return { topic, partition, records: [], tombstone: null, gone: false, next, ...what };
}

function recreated({ earliest_seq, head_seq }: Position): Tombstone {
  return {
    gap_from: 1,
    gap_to: head_seq,
    reason: "recreated",
    missed_estimate: head_seq,
    earliest_seq,
    head_seq,
  };
}

/** The part of a loss that was not handed out before. */
function after(seq: number, stone: Tombstone): Tombstone {
  if (stone.gap_from > seq) return stone;
  return {
    ...stone,
    gap_from: seq + 1,
    missed_estimate: Math.min(stone.missed_estimate, stone.gap_to - seq),
  };
}
