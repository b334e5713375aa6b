// `HeldJob`: a job in a worker's hand, and what became of it.
//
// Invariant: a job leaves the hand once, and every call about it carries the lease id that it was
// claimed under, so that a worker that comes too late changes nothing (§10.4).

import { InvalidRequest, LeaseLost } from "./errors.js";
import type { Job, Nacked, Signalled } from "./models.js";
import type { Queue } from "./queue.js";

/**
 * What became of a job that was handed out: "held" until it is settled, "settling" while the server
 * is asked, then "acked", "nacked", or "lost": its lease ended, and another worker has the job or
 * may have it.
 */
export type JobState = "held" | "settling" | "acked" | "nacked" | "lost";

/** How a job is given back. */
export interface NackOptions {
  /** Milliseconds until it can be claimed again; by default as its queue or its worker says. */
  delay_ms?: number;
  /** Why, for those who look at the queue; the server keeps the first KiB. */
  reason?: string;
  /** To the dead letters at once. */
  dead?: boolean;
}

/** What a job needs to know of its worker. */
export interface Keeper<D> {
  queue: Queue<D>;
  node: string;
  lease_ms: number;
  /** The delay after the n-th delivery, in milliseconds; undefined: the queue has its own. */
  delay(deliveries: number): number | undefined;
  /** The job left the hand. */
  left(job: HeldJob<D>): void;
}

/** A job in hand: what was claimed, and what became of it. */
export class HeldJob<D = any> {
  readonly seq: number;
  /** When it was appended, milliseconds since the epoch. */
  readonly ts: number;
  readonly data: D;
  readonly tag: string | undefined;
  /** The writer of the record. */
  readonly node: string | undefined;
  readonly meta: { [name: string]: unknown } | undefined;
  readonly lease_id: string;
  /** How often the job was handed out, this time included. */
  readonly deliveries: number;
  readonly priority: number;
  readonly group: string | undefined;
  /** When its lease ends, milliseconds since the epoch; the worker extends it. */
  deadline: number;
  state: JobState = "held";
  readonly #controller = new AbortController();

  readonly #keeper: Keeper<D>;

  constructor(keeper: Keeper<D>, job: Job<D>) {
    this.#keeper = keeper;
    this.seq = job.seq;
    this.ts = job.ts;
    this.data = job.data;
    this.tag = job.tag;
    this.node = job.node;
    this.meta = job.meta;
    this.lease_id = job.lease_id;
    this.deliveries = job.deliveries;
    this.priority = job.priority ?? 0;
    this.group = job.group;
    this.deadline = job.deadline;
  }

  /** Aborted when the lease is lost, and when the worker's own signal is: the work is in vain. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** It is done, with what came of it. Resolves to false where its lease was lost before. */
  async ack({ result, signal }: Signalled<{ result?: unknown }> = {}): Promise<boolean> {
    const { queue, node } = this.#keeper;
    return this.#settle("acked", () => queue.ack(this, { node, result, signal }));
  }

  /** Give it back. Resolves to false where its lease was lost before. */
  async nack({ delay_ms, reason, dead, signal }: Signalled<NackOptions> = {}): Promise<boolean> {
    const { queue, node } = this.#keeper;
    const wait_ms = delay_ms ?? (dead ? 0 : this.#keeper.delay(this.deliveries));
    return this.#settle("nacked", () =>
      queue.nack(this, { node, delay_ms: wait_ms, reason, dead, signal }),
    );
  }

  /** Say how far it is, any JSON of at most 1,024 bytes; its lease begins anew (§10.6). */
  async progress(value: unknown, { signal }: Signalled = {}): Promise<void> {
    const { queue, node, lease_ms } = this.#keeper;
    this.extended(await queue.extend(this, { node, lease_ms, progress: value, signal }));
  }

  /** @internal Take the answer of an extension. */
  extended({
    skipped,
    deadlines,
  }: {
    skipped: number[];
    deadlines: { [seq: string]: number };
  }): void {
    this.deadline = deadlines[this.seq] ?? this.deadline;
    if (skipped.includes(this.seq)) this.lose();
  }

  /**
   * @internal Its lease ended. A job that is being settled is left alone: the answer says what
   *     became of it.
   */
  lose(): void {
    if (this.state === "held") this.#leave("lost");
  }

  /** @internal The worker's own signal was aborted. */
  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  async #settle(end: JobState, send: () => Promise<Pick<Nacked, "skipped">>): Promise<boolean> {
    if (this.state !== "held") return this.state === end;
    this.state = "settling";
    try {
      const { skipped } = await send();
      this.#leave(skipped.includes(this.seq) ? "lost" : end);
    } catch (error) {
      // A call that is wrong changes nothing, and the job can still be given back.
      if (error instanceof InvalidRequest || error instanceof TypeError) this.state = "held";
      else this.#leave("lost");
      throw error;
    }
    return this.state === end;
  }

  #leave(end: JobState): void {
    this.state = end;
    if (end === "lost") this.abort(leaseLost(this));
    this.#keeper.left(this);
  }
}

/** What `on_error` is given for a job that is lost. */
export function leaseLost({ seq, lease_id }: { seq: number; lease_id: string }): LeaseLost {
  const message = `the lease of job ${seq} ran out: another worker has it, or had it`;
  return new LeaseLost(message, { code: "lease_lost", status: 0, detail: { seq, lease_id } });
}
