// `Producer`: takes single records, and sends them in batches, in order, in the background.
//
// Invariant: batches are sent one after the other, in the order in which their records came, each
// under an idempotency key of its own; after a batch that failed none is sent.

import { appendCall, appended, encodeRecord, newKey, type WriteOptions } from "./batches.js";
import { badAnswer, NotSent } from "./errors.js";
import type { RecordOptions, Signalled } from "./models.js";
import type { Topic } from "./topic.js";
import { after, onAbort, Settled, sleep } from "./waiting.js";

/** Options of a producer. */
export interface ProducerOptions extends WriteOptions {
  /** Most records of a batch (5000); the server takes 10,000 by default. */
  batch_records?: number;
  /** Most characters of a batch's JSON (1,048,576); one record always fits. */
  batch_chars?: number;
  /** How long a record waits for others to fill its batch, in milliseconds (5). */
  linger_ms?: number;
  /** Most characters that are not acknowledged (16,777,216); `send` waits for room. */
  buffer_chars?: number;
}

/** A record on its way. */
export interface Sent {
  /**
   * Its sequence number, once it is acknowledged. Rejects where it was not appended, or where that
   * is unknown; a rejection that nobody waits for is left to `flush` and `close`.
   */
  readonly seq: Promise<number>;
}

/** Records that are appended together. */
class Batch {
  readonly records: string[] = [];
  chars = 0;
  isClosed = false;
  readonly done = new Settled<number[]>();

  constructor(readonly key: string) {}

  add(record: string): Sent {
    const at = this.records.push(record) - 1;
    this.chars += record.length + 1;
    const { promise } = this.done;
    return {
      get seq() {
        const seq = promise.then((seqs) => seqs[at]!);
        // A failure that nobody waits for is told by `flush` and `close`.
        seq.catch(() => {});
        return seq;
      },
    };
  }
}

/** Takes single records of a topic, many a second, and sends them in batches. */
export class Producer<D = any> implements AsyncDisposable {
  readonly #limits: Required<
    Pick<ProducerOptions, "batch_records" | "batch_chars" | "linger_ms" | "buffer_chars">
  >;
  readonly #options: WriteOptions;
  readonly #prefix = `${newKey()}-`;
  #batches = 0;
  #chars = 0;
  /** Batches that are not acknowledged; the first is on its way where `sending` says so. */
  readonly #queue: Batch[] = [];
  #sending: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Calls of `send` that wait for room, each behind the one before it. */
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #isClosed = false;
  #error: unknown;
  #hasThrown = false;

  readonly #topic: Topic<D>;

  constructor(
    topic: Topic<D>,
    {
      batch_records = 5000,
      batch_chars = 1 << 20,
      linger_ms = 5,
      buffer_chars = 16 << 20,
      ...options
    }: ProducerOptions = {},
  ) {
    this.#topic = topic;
    this.#limits = { batch_records, batch_chars, linger_ms, buffer_chars };
    this.#options = options;
    // What cannot be sent in any batch is refused here, and not by the first one.
    appendCall(topic.name, [], options);
  }

  /**
   * Take a record. Resolves when it is taken, which waits while too much is not acknowledged;
   * records of one caller stay in order also where it does not wait for that. The signal ends the
   * wait; a record that is taken is sent.
   *
   * @throws TypeError JSON has no form for the value; no other record is affected
   * @throws NotSent a batch before it failed; to go on, make another producer
   */
  async send(data: D, { signal, ...options }: Signalled<RecordOptions> = {}): Promise<Sent> {
    const record = encodeRecord(data, options);
    signal?.throwIfAborted();
    if (this.#waiting === 0 && this.#hasRoom(record)) {
      const sent = this.#take(record);
      // A program that only calls `send` would never let the batch go.
      if (this.#queue.at(-1)?.isClosed) await sleep(0);
      return sent;
    }
    this.#waiting += 1;
    const sent = new Settled<Sent>();
    this.#turn = this.#turn.then(() => this.#room(record, sent, signal));
    const forget = onAbort(signal, () => sent.reject(signal!.reason));
    try {
      return await sent.promise;
    } finally {
      forget();
      this.#waiting -= 1;
    }
  }

  /**
   * Send what was taken, and wait until it is acknowledged; throws the error of a batch that
   * failed.
   */
  async flush(): Promise<void> {
    await this.#turn;
    const last = this.#queue.at(-1);
    this.#closeBatch();
    await last?.done.promise.catch(() => {});
    this.#throwError();
  }

  /**
   * Send what was taken, and take no more. Throws the error of a batch that failed, unless `flush`
   * did.
   */
  async close(): Promise<void> {
    await this.#turn;
    this.#isClosed = true;
    this.#closeBatch();
    await this.#sending;
    if (!this.#hasThrown) this.#throwError();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #throwError(): void {
    if (this.#error === undefined) return;
    this.#hasThrown = true;
    throw this.#error;
  }

  #hasRoom(record: string): boolean {
    if (this.#error !== undefined) throw notSent(this.#error);
    if (this.#isClosed) throw new TypeError("the producer is closed");
    return this.#chars === 0 || this.#chars + record.length < this.#limits.buffer_chars;
  }

  /** Take a record once there is room for it, unless its signal is aborted before. */
  async #room(record: string, sent: Settled<Sent>, signal?: AbortSignal): Promise<void> {
    try {
      while (!signal?.aborted && !this.#hasRoom(record)) {
        this.#closeBatch();
        await this.#queue[0]!.done.promise.catch(() => {});
      }
      if (!signal?.aborted) sent.resolve(this.#take(record));
    } catch (error) {
      sent.reject(error);
    }
  }

  #take(record: string): Sent {
    const { batch_records, batch_chars, linger_ms } = this.#limits;
    let batch = this.#queue.at(-1);
    if (batch !== undefined && !batch.isClosed && batch.chars + record.length >= batch_chars)
      this.#closeBatch();
    if (batch === undefined || batch.isClosed) {
      batch = new Batch(this.#prefix + this.#batches++);
      this.#queue.push(batch);
      this.#timer = after(linger_ms, () => this.#closeBatch());
    }
    const sent = batch.add(record);
    this.#chars += record.length + 1;
    if (batch.records.length >= batch_records || batch.chars >= batch_chars) this.#closeBatch();
    return sent;
  }

  /** Let the batch that is being filled be sent next, with no record more. */
  #closeBatch(): void {
    clearTimeout(this.#timer);
    const batch = this.#queue.at(-1);
    if (batch === undefined) return;
    batch.isClosed = true;
    this.#sending ??= this.#run();
  }

  async #run(): Promise<void> {
    for (let batch = this.#queue[0]; batch?.isClosed; batch = this.#queue[0]) {
      try {
        await this.#append(batch);
      } catch (error) {
        this.#fail(error);
      }
    }
    this.#sending = undefined;
  }

  async #append(batch: Batch): Promise<void> {
    const options = { ...this.#options, idempotency_key: batch.key };
    const answer = appended(
      await this.#topic.session.do(appendCall(this.#topic.name, batch.records, options)),
    );
    if (answer.count !== batch.records.length) {
      throw badAnswer(
        `a batch of ${batch.records.length} was answered as ${answer.count} records`,
        200,
      );
    }
    this.#queue.shift();
    this.#chars -= batch.chars;
    batch.done.resolve(answer.seqs);
  }

  /** With a batch fail all that wait behind it: sent now, they would be out of order. */
  #fail(error: unknown): void {
    clearTimeout(this.#timer);
    this.#error = error;
    for (const [at, batch] of this.#queue.splice(0).entries())
      batch.done.reject(at === 0 ? error : notSent(error));
    this.#chars = 0;
  }
}

function notSent(cause: unknown): NotSent {
  const message = `not sent, because a batch before it failed: ${cause}`;
  return new NotSent(message, { code: "not_sent", status: 0, cause });
}
