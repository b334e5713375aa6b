// Appends: records as JSON, and batches of them.

import { encode } from "./json.js";
import type { Appended, NewRecord, RecordOptions, Signalled, TopicOptions } from "./models.js";
import { randomHex } from "./random.js";
import type { Call } from "./session.js";
import { given, path } from "./session.js";

/** Options of every append. */
export interface WriteOptions {
  /** Writer of each record that does not name its own. */
  node?: string;
  /** False: reject with `TopicNotFound` instead of creating the topic. */
  create?: boolean;
  /** Of the topic, if this append creates it. */
  config?: TopicOptions;
  /**
   * The server admits the append under load, and may hold it back, instead of answering 429 (§0.6).
   */
  disable_backpressure?: boolean;
}

/** Options of one atomic append. */
export interface BatchOptions extends WriteOptions {
  /**
   * The same key again appends nothing and has the first answer (§0.8). By default each append has
   * a new one; null sends none, and an attempt whose answer was lost is not repeated.
   */
  idempotency_key?: string | null;
}

/** A record as JSON: its value and what is said of it. */
export function encodeRecord(data: unknown, options: RecordOptions): string {
  const value = encode(data);
  const rest = encode(given(options)).slice(1);
  return `{"data":${value}${rest === "}" ? "" : ","}${rest}`;
}

/** Append records that are JSON already as one atomic batch. */
export function appendCall(
  topic: string,
  records: string[],
  { idempotency_key, signal, ...options }: Signalled<BatchOptions>,
): Call {
  const rest = encode(given({ idempotency_key, ...options }));
  return {
    method: "POST",
    path: path`/v0/topics/${topic}`,
    signal,
    params: { return_seqs: false },
    text: `{"records":[${records.join()}]${rest === "{}" ? "" : ","}${rest.slice(1)}`,
    // Without a key an attempt whose answer was lost may have been appended.
    repeatable: idempotency_key != null,
  };
}

/** A key that no other append has. */
export function newKey(): string {
  return randomHex(16);
}

/** The answer of an append, with the sequence number of each record. */
export function appended(answer: any): Appended {
  const { first_seq, count } = answer;
  answer.seqs ??= Array.from({ length: count }, (_, at) => first_seq + at);
  return answer;
}

/** Sum of the batches of one `appendMany`. */
export interface AppendedMany {
  /** Records acknowledged, the deduplicated ones included. */
  records: number;
  /** How many of them an earlier attempt had appended already. */
  deduped: number;
  batches: number;
  /** Of a queue: how many made no job, as another one had their unique key. */
  unique: number;
  /** Of a queue: how many jobs made way for them. */
  replaced: number;
}

/** Options of `appendMany`. */
export interface ManyOptions extends WriteOptions {
  /** Most records of a batch (1000); the server takes 10,000 by default. */
  batch_records?: number;
  /** Most characters of a batch's JSON (4,194,304); one record always fits. */
  batch_chars?: number;
  /**
   * The idempotency key of a batch is this and the batch's number. The same records, batch sizes
   * and prefix, sent again within the topic's window, are not appended again.
   */
  key_prefix?: string;
  /** Called with the answer for each batch. */
  progress?: (answer: Appended) => void;
}

/** Append any number of records in atomic batches, one after the other. */
export async function appendMany(
  records: Iterable<NewRecord> | AsyncIterable<NewRecord>,
  append: (records: string[], options: BatchOptions) => Promise<Appended>,
  {
    batch_records = 1000,
    batch_chars = 4 << 20,
    key_prefix = `${newKey()}-`,
    progress,
    ...options
  }: ManyOptions,
): Promise<AppendedMany> {
  const total: AppendedMany = { records: 0, deduped: 0, batches: 0, unique: 0, replaced: 0 };
  let batch: string[] = [];
  let chars = 0;
  const send = async () => {
    if (batch.length === 0) return;
    const answer = await append(batch, { ...options, idempotency_key: key_prefix + total.batches });
    total.records += answer.count;
    total.deduped += answer.deduped ? answer.count : 0;
    total.batches += 1;
    for (const of of ["unique", "replaced"] as const) total[of] += answer[of]?.length ?? 0;
    [batch, chars] = [[], 0];
    progress?.(answer);
  };
  for await (const { data, ...of } of records) {
    const record = encodeRecord(data, of);
    if (chars + record.length > batch_chars) await send();
    batch.push(record);
    chars += record.length + 1;
    // A full batch is sent at once and not with the record after it, which may be an hour away.
    if (batch.length >= batch_records) await send();
  }
  await send();
  return total;
}
