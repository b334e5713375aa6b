// `Queue`: a topic whose records are leased to workers as jobs, by its name. Making one sends
// nothing.

import { list } from "./lists.js";
import { plainAll } from "./models.js";
import type * as Models from "./models.js";
import type { Claimed, Job, Signalled, TagMatch } from "./models.js";
import { path } from "./session.js";
import { Topic } from "./topic.js";
import { Worker, type Handler, type WorkOptions } from "./worker.js";

/** A job as it is named: by its number, or as it was claimed; then its lease id is sent, too. */
export type Named = number | { seq: number; lease_id: string };

/** Which jobs are changed: one by its number, or those that match. */
export interface JobChoice<State extends string> {
  seq?: number;
  match?: TagMatch;
  state?: State;
  /** Change nothing, and say how many would be. */
  dry_run?: boolean;
}

/** One queue. `D` is the type of its jobs' data, which the client does not check. */
export class Queue<D = any> extends Topic<D> {
  /** Create the queue, or replace its whole config (§1.1). */
  override put(
    options: Signalled<Omit<Models.TopicOptions, "type">> = {},
  ): Promise<Models.TopicPut> {
    return super.put({ ...options, type: "queue" });
  }

  /**
   * Do jobs as they come, until `stop` or a limit; each job is acked when the handler's promise
   * resolves, and given back with a delay where it rejects.
   *
   *     const worker = images.work(async (job) => resize(job.data.url), { concurrency: 4 });
   *     process.on("SIGTERM", () => worker.stop());
   *     await worker.done;
   */
  work(handler: Handler<D>, options: WorkOptions<D> = {}): Worker<D> {
    return new Worker<D>(this, handler, options);
  }

  // ---------------------------------------------------------------- single calls of a worker

  /**
   * Lease jobs to the worker `node` (§10.2). Repeated where its answer was lost: the jobs of that
   * answer are handed out again when their lease ends.
   */
  async claim({ signal, ...body }: Signalled<Models.ClaimOptions>): Promise<Claimed<D>> {
    const wait_ms = Math.min(body.wait_ms ?? 0, 30_000);
    const answer = await this.call("POST", "/claim", {
      body,
      wait_ms,
      outlives_faults: true,
      signal,
    });
    return { ...answer, claimed: plainAll<Job<D>>(answer.claimed) };
  }

  /**
   * The jobs are done, with what came of all of them (`result`), or of each by its number
   * (`results`) (§10.4).
   */
  ack(
    jobs: Named | Named[],
    { signal, ...body }: Signalled<Models.AckOptions>,
  ): Promise<Models.Acked> {
    return this.#settle("/ack", jobs, body, signal);
  }

  /**
   * Give jobs back, to be claimed again after `delay_ms`, or as the queue's `backoff` says; with
   * `dead` they go to the dead letters (§10.5).
   */
  nack(
    jobs: Named | Named[],
    { signal, ...body }: Signalled<Models.NackRequest>,
  ): Promise<Models.Nacked> {
    return this.#settle("/nack", jobs, body, signal);
  }

  /** Let leases end `lease_ms` from now, and say how far the jobs are (§10.6). */
  extend(
    jobs: Named | Named[],
    { signal, ...body }: Signalled<Models.ExtendOptions>,
  ): Promise<Models.Extended> {
    return this.#settle("/extend", jobs, body, signal);
  }

  #settle(action: string, jobs: Named | Named[], body: object, signal?: AbortSignal): Promise<any> {
    const named = Array.isArray(jobs) ? jobs : [jobs];
    const seqs = named.map((job) => (typeof job === "number" ? job : job.seq));
    const known = named.flatMap((job) => (typeof job === "number" ? [] : [job.lease_id]));
    if (known.length > 0 && known.length !== seqs.length)
      throw new TypeError("jobs with and without a lease id");
    const lease_ids = known.length > 0 ? known : undefined;
    // Without a lease id a second nack could give back a job that the same node has claimed again.
    const repeatable = action !== "/nack" || lease_ids !== undefined;
    return this.call("POST", action, {
      body: { ...body, seqs, lease_ids },
      repeatable,
      outlives_faults: true,
      signal,
    });
  }

  /**
   * Move dead letters of the topic `from` back to this queue, the oldest first (§10). While the
   * answer has `more`, call again.
   */
  redrive(
    from: string,
    { signal, ...body }: Signalled<Models.RedriveOptions> = {},
  ): Promise<Models.Redriven> {
    const call = {
      method: "POST",
      path: path`/v0/topics/${from}/redrive`,
      body: { ...body, to: this.name },
      signal,
    } as const;
    return this.session.do({ ...call, repeatable: body.dry_run === true });
  }

  // ---------------------------------------------------------------- what became of jobs

  /** The jobs of a state, or all that are in the queue (§10.9). */
  jobs({
    signal,
    ...params
  }: Signalled<{ state?: Models.JobItem["state"]; group?: string }> = {}): AsyncGenerator<
    Models.JobItem,
    void,
    undefined
  > {
    const call = { path: this.path("/jobs"), params, signal };
    return list(this.session, call, "jobs", ["next_after", "after", "limit"]);
  }

  /** One job; with `wait_ms`, once it has ended or the time is over (§10.9). */
  job(
    seq: number,
    { wait_ms, signal }: Signalled<{ wait_ms?: number }> = {},
  ): Promise<Models.JobAnswer> {
    return this.call("GET", path`/jobs/${seq}`, {
      params: { wait_ms },
      wait_ms: Math.min(wait_ms ?? 0, 30_000),
      signal,
    });
  }

  /** Delayed jobs can be claimed now (§10.9). */
  promote(which: Signalled<JobChoice<"delayed">>): Promise<Models.JobsChanged> {
    return this.#change("promote", which);
  }

  /** Jobs that were given back can be claimed now, and their deliveries count from none (§10.9). */
  retry(which: Signalled<JobChoice<"delayed">>): Promise<Models.JobsChanged> {
    return this.#change("retry", which);
  }

  /** Jobs that nobody holds are deleted (§10.9). */
  cancel(which: Signalled<JobChoice<"delayed" | "ready">>): Promise<Models.JobsChanged> {
    return this.#change("cancel", which);
  }

  #change(
    action: string,
    { seq, signal, ...body }: Signalled<JobChoice<string>>,
  ): Promise<Models.JobsChanged> {
    const where = seq === undefined ? "/jobs/" : path`/jobs/${seq}/`;
    // A job that the first attempt changed may be another worker's by the second, or gone.
    return this.call("POST", where + action, { body, repeatable: body.dry_run === true, signal });
  }
}
