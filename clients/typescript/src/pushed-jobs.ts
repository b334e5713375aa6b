// Jobs that the server pushes to a worker (§10.8).

import { EventConnection } from "./connection.js";
import { TopicNotFound } from "./errors.js";
import { plain, type Job } from "./models.js";
import { path, type Call, type Session } from "./session.js";

/** Two heartbeats of 15 s and 5 s more without a byte: the connection counts as lost (§7.6). */
const IDLE_MS = 35_000;
/**
 * Statuses of an `error` event after which a new connection may do better; a 500 may be of one
 * damaged job.
 */
const PASSING = [408, 500, 502, 503, 504];

/**
 * The jobs of a queue over any number of connections, until the signal is aborted. When a
 * connection breaks, the server gives the jobs that came over it to other workers; the answer to an
 * ack says whether it counted.
 */
export async function* pushedJobs<D>(
  session: Session,
  queue: string,
  params: { node: string; max: number; lease_ms?: number },
  signal: AbortSignal,
): AsyncGenerator<Job<D>, void, undefined> {
  const connection = new EventConnection(session, signal);
  const call: Call = {
    method: "GET",
    path: path`/v0/topics/${queue}/work`,
    params,
    headers: { accept: "text/event-stream" },
    outlives_faults: true,
  };
  try {
    for (;;) {
      for await (const event of connection.events(call, IDLE_MS)) {
        if (event.kind === "job") yield plain<Job<D>>(session.decode(event.data));
        const error = event.kind === "error" ? connection.errorOf(event) : undefined;
        if (error === undefined) continue;
        const { message, status } = error;
        if (status === 404) throw new TopicNotFound(message, { code: "topic_not_found", status });
        if (!PASSING.includes(status)) throw error;
        break;
      }
      await connection.pause(call);
    }
  } catch (error) {
    if (!signal.aborted || error !== signal.reason) throw error;
  }
}
