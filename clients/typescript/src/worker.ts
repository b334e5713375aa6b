// `Worker`: claims jobs of a queue, or has them pushed, keeps their leases and settles them.
//
// One loop claims for all hands: as many jobs as hands are free. The leases of all jobs in hand are
// extended three times in each lease, so that two extensions may fail.

import { Conflict, NotFound } from "./errors.js";
import { HeldJob, leaseLost, type Keeper } from "./held-job.js";
import { pushedJobs } from "./pushed-jobs.js";
import type { Claimed, Job } from "./models.js";
import type { Queue } from "./queue.js";
import { randomHex } from "./random.js";
import { Attempts, now } from "./retry.js";
import { onAbort, Settled, sleep } from "./waiting.js";

/**
 * What does a job; what its promise resolves to may be kept as the job's result (`keep_results`).
 */
export type Handler<D> = (job: HeldJob<D>) => unknown;

/** Options of `Queue.work`. */
export interface WorkOptions<D = any> {
  /** Name of the worker; by default one that no other worker has. */
  node?: string;
  /** How many jobs are in hand at a time (1). */
  concurrency?: number;
  /**
   * How soon another worker may have the jobs of one that died, in milliseconds within [100,
   * 86,400,000]; by default the queue's. The lease of a job in hand is extended in the background,
   * however long it takes.
   */
  lease_ms?: number;
  /** How long a claim waits for a first job, in milliseconds (5000), at most 30,000. */
  wait_ms?: number;
  /**
   * Delay of a job that failed at its first delivery, in milliseconds (1000); it doubles with each
   * delivery. Where neither this nor `longest_delay_ms` is given, a queue that has a `backoff`
   * decides.
   */
  first_delay_ms?: number;
  /** The delay that the doubling ends at, in milliseconds (300,000). */
  longest_delay_ms?: number;
  /**
   * Have jobs pushed over a connection instead of claiming them. When it breaks, as it does when
   * the process is killed, the server gives the jobs to other workers at once. Not together with
   * `drain`.
   */
  push?: boolean;
  /** End when no job is ready, instead of waiting for more. */
  drain?: boolean;
  /** End after so many jobs. */
  limit?: number;
  /**
   * What the handler's promise resolves to, unless it is undefined or null, is the job's result.
   */
  keep_results?: boolean;
  /**
   * Called for each job whose handler failed, with the error; and with `LeaseLost` for each job
   * whose lease ended before it was done. By default `console.error` is. Where it throws, the
   * worker ends, and `done` rejects with the error.
   */
  on_error?: (error: unknown, job: HeldJob<D>) => void;
  /**
   * Aborted, it ends the worker at once: jobs in hand are given back without a delay, and `done`
   * resolves, within half a second where the server does not answer.
   */
  signal?: AbortSignal;
}

/** The shortest and the longest lease that a server grants, in milliseconds (§10.2). */
const LEASE_MS_MIN = 100;
const LEASE_MS_MAX = 86_400_000;
/** Jobs in one extension; a server takes 1000 by default (§10.6). */
const MAX_NAMED = 100;
const EXTENSIONS_PER_LEASE = 3;
/** The longest pause after an extension that failed, in milliseconds. */
const EXTEND_AGAIN_MS = 1000;
/** What a claim waits for that ends by itself, so that a queue is not drained by it. */
const PACED = ["rate", "in_flight"];
/**
 * How long a claim under way may still bring jobs when the worker is stopped, and a job be given
 * back when it is aborted, in milliseconds.
 */
const LAST_CLAIM_MS = 500;
/** Of a reason; the server keeps so many bytes (§10.5). */
const REASON_CHARS = 1024;
/** Bounds the doubling; the longest delay is reached long before. */
const DOUBLINGS_MAX = 40;

/** Does the jobs of a queue, as `Queue.work` begins it: making one begins it. */
export class Worker<D = any> implements Keeper<D>, AsyncDisposable {
  readonly node: string;
  /**
   * How many jobs were done, once the worker has ended; rejects with what ended it, after the jobs
   * in hand.
   */
  readonly done: Promise<number>;
  lease_ms: number;
  readonly #held = new Set<HeldJob<D>>();
  readonly #running = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  /** Cuts off what is asked of the server, some time after `stopping`. */
  readonly #cutting = new AbortController();
  /** Ends the connection that jobs are pushed over. */
  readonly #ended = new AbortController();
  /** Resolved once the program's signal is aborted, and the jobs in hand are given back. */
  readonly #aborted = new Settled<void>();
  #queueDecides = false;
  #acked = 0;
  #remaining: number;
  #freed = new Settled<void>();
  #failure: { error: unknown } | undefined;
  readonly #handler: Handler<D>;
  readonly #options: WorkOptions<D>;

  constructor(
    readonly queue: Queue<D>,
    handler: Handler<D>,
    options: WorkOptions<D> = {},
  ) {
    this.#handler = handler;
    this.#options = options;
    // A stream does not say when a queue is empty.
    if (options.push && options.drain) throw new TypeError("push and drain exclude each other");
    if (!(this.#concurrency >= 1)) throw new TypeError("a worker has at least one hand");
    this.node = options.node ?? `js-${randomHex(6)}`;
    const { lease_ms } = options;
    // The server bounds it without a word, and leases end by what it has made of it.
    this.lease_ms = lease_ms == null ? 0 : Math.min(Math.max(lease_ms, LEASE_MS_MIN), LEASE_MS_MAX);
    this.#remaining = options.limit ?? Infinity;
    this.done = this.#run();
    // A worker whose end nobody waits for ends no process.
    this.done.catch(() => {});
  }

  /** Take no more jobs; those in hand are finished. Resolves as `done` does. */
  stop(): Promise<number> {
    this.#stopping.abort();
    return this.done;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  // ---------------------------------------------------------------- what a job asks

  /** @internal */
  delay(deliveries: number): number | undefined {
    if (this.#queueDecides) return undefined;
    const { first_delay_ms = 1000, longest_delay_ms = 300_000 } = this.#options;
    return Math.min(
      first_delay_ms * 2 ** Math.min(deliveries - 1, DOUBLINGS_MAX),
      longest_delay_ms,
    );
  }

  /** @internal */
  left(job: HeldJob<D>): void {
    this.#held.delete(job);
  }

  // ---------------------------------------------------------------- the worker's life

  get #concurrency(): number {
    return this.#options.concurrency ?? 1;
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  async #run(): Promise<number> {
    const { signal, push } = this.#options;
    const forgetAbort = onAbort(signal, () => this.#abort());
    const extending = new AbortController();
    let cut: ReturnType<typeof setTimeout> | undefined;
    const forgetStop = onAbort(this.#stopping.signal, () => {
      this.#freed.resolve();
      cut = setTimeout(() => this.#cutting.abort(), LAST_CLAIM_MS);
    });
    try {
      if (signal?.aborted) this.#abort();
      await this.#open();
      const extended = this.#extendLeases(extending.signal);
      try {
        await (push ? this.#takePushed() : this.#claimAll());
      } finally {
        await this.#handsFree();
        extending.abort();
        await extended;
      }
    } catch (error) {
      // A call that `stop` or the signal cut off is no failure.
      if (error !== this.#cutting.signal.reason) throw error;
    } finally {
      forgetAbort();
      forgetStop();
      clearTimeout(cut);
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    return this.#acked;
  }

  /** No job is in hand any more. */
  async #handsFree(): Promise<void> {
    const all = async () => {
      while (this.#running.size > 0) await Promise.all(this.#running);
    };
    await Promise.race([all(), this.#aborted.promise]);
  }

  /**
   * Ask for the queue's `lease_ms`, which an extension must name, and whether it has a `backoff`.
   */
  async #open(): Promise<void> {
    const { first_delay_ms, longest_delay_ms } = this.#options;
    const hasDelays = (first_delay_ms ?? longest_delay_ms) !== undefined;
    if (this.lease_ms && hasDelays) return;
    const { config } = await this.queue.state({ touch: false, signal: this.#cutting.signal });
    this.lease_ms ||= config.lease_ms;
    this.#queueDecides = !hasDelays && config.backoff != null;
  }

  #abort(): void {
    this.#stopping.abort();
    const { signal } = this.#options;
    // Else the jobs that are given back would be pushed again.
    this.#ended.abort();
    const given = [...this.#held].map((job) => {
      job.abort(signal!.reason);
      return job.nack({ delay_ms: 0, signal: this.#cutting.signal });
    });
    // Where the server does not answer soon, the leases run out.
    void Promise.allSettled(given).then(() => this.#aborted.resolve());
  }

  // ---------------------------------------------------------------- claiming

  async #claimAll(): Promise<void> {
    const { drain = false, wait_ms = 5000, lease_ms } = this.#options;
    const pauses = () => new Attempts({ ...this.queue.session.options.retry, for_ms: Infinity });
    let idle = pauses();
    while (!this.#isStopping && this.#remaining > 0) {
      const max = Math.min(this.#concurrency - this.#running.size, this.#remaining);
      if (max <= 0) {
        await this.#oneFreed();
        continue;
      }
      const begun_ms = now();
      const options = { node: this.node, max, lease_ms, wait_ms: drain ? undefined : wait_ms };
      const claimed = await this.#claim(options);
      for (const job of claimed.claimed) this.#begin(job);
      if (claimed.count > 0) idle = pauses();
      else if (!drain) {
        // A server that did not hold the answer back: without a pause this would be a busy loop.
        if (now() - begun_ms < wait_ms / 2) await this.#pause(idle.pause()!);
      } else if (PACED.includes(claimed.waits ?? "")) await this.#pause(idle.pause()!);
      else if (this.#running.size > 0) await this.#oneFreed();
      else return;
    }
  }

  /**
   * A claim. Where the worker is stopped meanwhile, one that waits for a job is cut off, and the
   * server forgets it; jobs that came all the same are given back.
   */
  async #claim(options: {
    node: string;
    max: number;
    lease_ms?: number;
    wait_ms?: number;
  }): Promise<Claimed<D>> {
    const claimed = await this.queue.claim({ ...options, signal: this.#cutting.signal });
    if (this.#isStopping && claimed.count > 0) {
      await this.queue.nack(claimed.claimed, { node: this.node, delay_ms: 0 }).catch(() => {});
      return { ...claimed, claimed: [] };
    }
    return claimed;
  }

  async #takePushed(): Promise<void> {
    const options = { node: this.node, max: this.#concurrency, lease_ms: this.#options.lease_ms };
    // The connection stays until the jobs in hand are done: with its end the server gives them to
    // others.
    const stop = () => void this.#handsFree().then(() => this.#ended.abort());
    if (this.#isStopping || this.#remaining <= 0) return;
    onAbort(this.#stopping.signal, stop);
    for await (const job of pushedJobs<D>(
      this.queue.session,
      this.queue.name,
      options,
      this.#ended.signal,
    )) {
      if (this.#isStopping) continue;
      this.#begin(job);
      // The jobs after the last one go back when the connection ends.
      if (this.#remaining === 0) this.#stopping.abort();
    }
  }

  // ---------------------------------------------------------------- a job

  #begin(claimed: Job<D>): void {
    this.#remaining -= 1;
    const job = new HeldJob<D>(this, claimed);
    this.#held.add(job);
    const running: Promise<void> = this.#handle(job)
      .catch((error) => this.#fail(error))
      .finally(() => {
        this.#running.delete(running);
        this.#freed.resolve();
      });
    this.#running.add(running);
  }

  async #handle(job: HeldJob<D>): Promise<void> {
    const { keep_results, on_error = logError } = this.#options;
    try {
      const result = await this.#handler(job);
      await job.ack({ result: keep_results ? result : undefined });
    } catch (error) {
      // After an ack that failed the job may have left already; where the nack fails too, its lease runs out.
      await job.nack({ reason: reasonOf(error) }).catch(() => {});
      // Given back because the worker was aborted: the error is of that.
      if (!this.#options.signal?.aborted) on_error(error, job);
      return;
    }
    if (job.state === "acked") this.#acked += 1;
    if (job.state === "lost") on_error(leaseLost(job), job);
  }

  /** `on_error` threw, which is the program's word that the worker is to end. */
  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#stopping.abort();
  }

  /** A hand is free, or the worker is to stop. */
  #oneFreed(): Promise<void> {
    this.#freed = new Settled();
    return this.#freed.promise;
  }

  /** Wait, but not longer than until `stop`. */
  async #pause(ms: number): Promise<void> {
    await sleep(ms, this.#stopping.signal).catch(() => {});
  }

  // ---------------------------------------------------------------- leases

  async #extendLeases(signal: AbortSignal): Promise<void> {
    const every_ms = this.lease_ms / EXTENSIONS_PER_LEASE;
    let pause_ms = every_ms;
    for (;;) {
      try {
        await sleep(pause_ms, signal);
      } catch {
        return;
      }
      pause_ms = every_ms;
      const held = [...this.#held];
      for (let at = 0; at < held.length; at += MAX_NAMED) {
        const isDone = await this.#extend(held.slice(at, at + MAX_NAMED), signal);
        if (!isDone) pause_ms = Math.min(every_ms, EXTEND_AGAIN_MS);
      }
    }
  }

  async #extend(jobs: HeldJob<D>[], signal: AbortSignal): Promise<boolean> {
    try {
      const answer = await this.queue.extend(jobs, {
        node: this.node,
        lease_ms: this.lease_ms,
        signal,
      });
      for (const job of jobs) job.extended(answer);
      return true;
    } catch (error) {
      // The queue was deleted, and its leases with it.
      if (error instanceof NotFound || error instanceof Conflict)
        for (const job of jobs) job.lose();
      return false;
    }
  }
}

/** Why a job failed, without halves of characters, which no server takes. */
function reasonOf(error: unknown): string {
  let text: string;
  try {
    text = String(error);
  } catch {
    // An object of a program's own may refuse to be a text.
    text = typeof error;
  }
  return text.slice(0, REASON_CHARS).replace(/\p{Surrogate}/gu, "\ufffd");
}

function logError(error: unknown, job: HeldJob): void {
  console.error(`job ${job.seq} failed at delivery ${job.deliveries}:`, error);
}
