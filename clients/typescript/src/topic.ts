// `Topic`: one topic, by its name. Making one sends nothing.

import { appendCall, appended, appendMany, encodeRecord, newKey } from "./batches.js";
import type { AppendedMany, BatchOptions, ManyOptions } from "./batches.js";
import { list } from "./lists.js";
import { plain, plainAll } from "./models.js";
import type * as Models from "./models.js";
import type { Appended, NewRecord, RecordOptions, Signalled, TopicRecord } from "./models.js";
import {
  PAGE_RECORDS,
  readPage,
  readPages,
  type Page,
  type PageOptions,
  type ReadOptions,
} from "./reading.js";
import { Resource } from "./resource.js";
import type { Call } from "./session.js";
import { Watch, type WatchOptions } from "./watch.js";
import type { Answer } from "./retry.js";

/** Options of a page that caches may keep (§3.4). */
export interface StablePageOptions {
  /** Exclusive; 0, the default, reads from the earliest record. */
  from?: number;
  /** Most records (1000). */
  limit?: number;
  /** Most bytes of them, but for the first (1 MiB). */
  max_batch_bytes?: number;
  include_tags?: boolean;
  include_meta?: boolean;
  epoch?: string;
  partition?: number;
}

/** A page without anything that moves while the page stays as it is; `etag` names it. */
export interface StablePage<D = any> {
  records: TopicRecord<D>[];
  next: number;
  /** Without `earliest_seq` and `head_seq`. */
  tombstone: Omit<Models.Tombstone, "earliest_seq" | "head_seq"> | null;
  etag: string;
}

/** One topic. `D` is the type of its records' data, which the client does not check. */
export class Topic<D = any> extends Resource {
  protected override get root(): string {
    return "/v0/topics";
  }

  // ---------------------------------------------------------------- the topic itself

  /**
   * Create the topic, or replace its whole config: what is left out returns to its default (§1.1).
   */
  put({ signal, ...body }: Signalled<Models.TopicOptions> = {}): Promise<Models.TopicPut> {
    return this.call("PUT", "", { body, signal });
  }

  /**
   * Change some fields of the config and keep the others. It reads the config and puts it back
   * changed: of two such calls at once, the later one wins.
   */
  async configure({
    signal,
    ...changes
  }: Signalled<Models.TopicOptions>): Promise<Models.TopicPut> {
    const { config } = await this.state({ touch: false, signal });
    // `durable` says less than `durability`, which overrides it.
    const { durable: _, durability, ...kept } = config;
    return this.put({
      ...kept,
      durability: "durable" in changes ? undefined : durability,
      ...changes,
      signal,
    });
  }

  /**
   * Sequence numbers, counts, config (§1.2). `touch: false` does not count as a use of the topic.
   */
  state({ touch = true, signal }: Signalled<{ touch?: boolean }> = {}): Promise<Models.TopicState> {
    return this.call("GET", "", { params: { touch }, signal });
  }

  /** Remove the topic with all its records; with `if_empty`, `Conflict` where it has any. */
  delete({
    if_empty = false,
    signal,
  }: Signalled<{ if_empty?: boolean }> = {}): Promise<Models.TopicDeleted> {
    // Between two attempts another client may have created a topic of that name.
    return this.call("DELETE", "", { params: { if_empty }, repeatable: false, signal });
  }

  // ---------------------------------------------------------------- writing

  /**
   * Append one value, with what is said of its record (`tag`, `meta`, `node`, and of a job
   * `delay_ms`, `priority`, …). A record of a queue is a job.
   */
  append(
    data: D,
    {
      idempotency_key,
      create,
      config,
      signal,
      ...of
    }: Signalled<RecordOptions & Pick<BatchOptions, "idempotency_key" | "create" | "config">> = {},
  ): Promise<Appended> {
    return this.#appendEncoded([encodeRecord(data, of)], {
      idempotency_key,
      create,
      config,
      signal,
    });
  }

  /** Append several records as one atomic batch: all of them or none. */
  appendBatch(
    records: Iterable<NewRecord<D>>,
    options: Signalled<BatchOptions> = {},
  ): Promise<Appended> {
    return this.#appendEncoded(
      Array.from(records, ({ data, ...of }) => encodeRecord(data, of)),
      options,
    );
  }

  /** Append any number of records in atomic batches, one after the other, from any iterable. */
  appendMany(
    records: Iterable<NewRecord<D>> | AsyncIterable<NewRecord<D>>,
    options: Signalled<ManyOptions> = {},
  ): Promise<AppendedMany> {
    return appendMany(records, (batch, of) => this.#appendEncoded(batch, of), options);
  }

  async #appendEncoded(
    records: string[],
    { idempotency_key = newKey(), ...options }: Signalled<BatchOptions>,
  ): Promise<Appended> {
    return appended(
      await this.session.do(appendCall(this.name, records, { ...options, idempotency_key })),
    );
  }

  // ---------------------------------------------------------------- reading

  /**
   * The records after `from`, page by page, and a tombstone where some were lost. Without `follow`
   * it ends at the head as the first page saw it. Your cursor is a page's `next`: store it once the
   * page is done with.
   */
  read(options: Signalled<ReadOptions> = {}): AsyncGenerator<Page<D>, void, undefined> {
    return readPages<D>(this.session, this.name, options);
  }

  /** One page of records after `from`. */
  page(options: Signalled<PageOptions> = {}): Promise<Page<D>> {
    return readPage<D>(this.session, this.name, options);
  }

  /**
   * One page of records, as HTTP caches may keep it (§3.4). With `known`, an earlier page of the
   * same options, the server sends nothing while that one still holds, and the call returns it.
   */
  async stablePage({
    from,
    known,
    signal,
    ...params
  }: Signalled<StablePageOptions & { known?: StablePage<D> }> = {}): Promise<StablePage<D>> {
    const call: Call = {
      method: "GET",
      path: this.path("/records"),
      signal,
      params: { limit: PAGE_RECORDS, from_seq: from, ...params },
      headers: { "if-none-match": known?.etag },
    };
    const outcome = await this.session.settle(call);
    if (known && (outcome as Answer).status === 304) return known;
    const { records, next_from_seq: next, tombstone } = this.session.read(call, outcome);
    return {
      records: plainAll(records),
      next,
      tombstone,
      etag: (outcome as Answer).headers.get("etag") ?? "",
    };
  }

  /** The newest record of a tag (§3.5); `RecordNotFound` where no record has the tag. */
  async latest(
    tag: string,
    { include_meta, signal }: Signalled<{ include_meta?: boolean }> = {},
  ): Promise<TopicRecord<D>> {
    const { records } = await this.call("GET", "/latest", {
      params: { tag, include_meta },
      signal,
    });
    return plain(records[0]);
  }

  /** The newest record of each tag that begins with a prefix (§3.5). */
  async *latestAll({
    prefix,
    include_meta,
    signal,
  }: Signalled<{ prefix?: string; include_meta?: boolean }> = {}): AsyncGenerator<
    TopicRecord<D>,
    void,
    undefined
  > {
    const call = {
      path: this.path("/latest"),
      params: { prefix, include_meta },
      signal,
    };
    for await (const record of list<any>(this.session, call, "records", [
      "next_cursor",
      "cursor",
      "limit",
    ]))
      yield plain(record);
  }

  /** The topic's records as they are appended; `Client.watch` of this topic alone. */
  watch(options: WatchOptions = {}): Watch<D> {
    return new Watch<D>(this, this.name, options);
  }

  // ---------------------------------------------------------------- deleting records

  /**
   * Delete records: those below `before_seq`, or whose tag matches, or of which both is true (§5).
   */
  deleteRecords({
    signal,
    ...body
  }: Signalled<Models.DeleteOptions>): Promise<Models.RecordsDeleted> {
    // It deletes what is there when it arrives: a second attempt would delete what came since the
    // first.
    return this.call("POST", "/delete", { body, repeatable: false, signal });
  }

  /**
   * Delete all records, or those whose tag matches the subject pattern `filter`: below `seq`, or
   * all but the newest `keep` (§5).
   */
  purge({ signal, ...body }: Signalled<Models.PurgeOptions> = {}): Promise<Models.Purged> {
    return this.call("POST", "/purge", { body, repeatable: false, signal });
  }
}
