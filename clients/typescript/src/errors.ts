// What a call can reject with: `TopicsError`, and a class for each case that a program may catch.
//
// Owns the mapping from an error envelope (§0.5) to a class. A code that is not in the table, from
// a newer server, becomes the class of its status.

/** What a `TopicsError` says besides its message. */
export interface ErrorFacts {
  /** `error.code` of the answer, stable; "unreachable" or "bad_answer" where no answer has one. */
  code: string;
  /** HTTP status; 0 where no answer came. */
  status: number;
  /** Structured context of the answer; empty where it has none. */
  detail?: { [name: string]: unknown };
  /** How long the server asked the client to wait, in milliseconds; undefined where it did not. */
  retry_after_ms?: number;
  /** What caused it: the error of `fetch`, or of the batch that failed. */
  cause?: unknown;
}

/** A call that did not succeed. */
export class TopicsError extends Error {
  readonly code: string;
  readonly status: number;
  readonly detail: { [name: string]: unknown };
  readonly retry_after_ms: number | undefined;

  constructor(message: string, facts: ErrorFacts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    // The name of its class would be another one where a page's code is minified.
    this.name = "TopicsError";
    this.code = facts.code;
    this.status = facts.status;
    this.detail = facts.detail ?? {};
    this.retry_after_ms = facts.retry_after_ms;
  }
}

/** No answer came: nothing listens at the address, the connection broke, or it took too long. */
export class Unreachable extends TopicsError {}

/** An answer came that is not in the form of this API: is the URL that of a `topics` server? */
export class BadAnswer extends TopicsError {}

/** 400 and other 4xx: the request is wrong, and sending it again does not help. */
export class InvalidRequest extends TopicsError {}

/** More records in one write than the server takes. */
export class BatchTooLarge extends InvalidRequest {}

/** One record's data and meta exceed the server's bound. */
export class RecordTooLarge extends InvalidRequest {}

/** 422: the topic is compacted, and a record has neither a tag nor a key; nothing was appended. */
export class KeyRequired extends InvalidRequest {}

/** 413: the body exceeds the server's bound. */
export class PayloadTooLarge extends InvalidRequest {}

/** 400: the topic has several partitions, and the call says none. */
export class PartitionRequired extends InvalidRequest {}

/** 401: the request has no key, or one that the server does not know. */
export class Unauthorized extends TopicsError {}

/** 403: the key, or the origin of the page, does not allow this call. */
export class Forbidden extends TopicsError {}

/** 404: what the call names does not exist. */
export class NotFound extends TopicsError {}

/** 404: the topic does not exist, and the call does not create it. */
export class TopicNotFound extends NotFound {}

/** 404: the topic has no partition of this number. */
export class PartitionNotFound extends NotFound {}

/** 404: the router does not exist. */
export class RouterNotFound extends NotFound {}

/** 404: the schedule does not exist. */
export class ScheduleNotFound extends NotFound {}

/** 404: no record of the topic has the tag. */
export class RecordNotFound extends NotFound {}

/** 404: the queue has no such job, and keeps nothing of it. */
export class JobNotFound extends NotFound {}

/** 404: the group of consumers does not exist, or has expired. */
export class GroupNotFound extends NotFound {}

/** 409: the state of the topic, the group, the job or the watch session forbids the call. */
export class Conflict extends TopicsError {}

/** 422: a topic with `discard: "reject"` has no room; nothing was appended. */
export class TopicFull extends TopicsError {}

/** 429: a cap was reached or the server was under load, and still was when the retries ended. */
export class Throttled extends TopicsError {}

/** 503: the server replays its log, or shuts down. */
export class NotReady extends TopicsError {}

/**
 * 500 and other 5xx. Whether a write took effect is unknown; sent again under the same idempotency
 * key, it takes effect once.
 */
export class ServerFault extends TopicsError {}

/**
 * A worker's lease ran out before its job was done. It is given to `on_error`, and never thrown.
 */
export class LeaseLost extends TopicsError {}

/**
 * A record of a producer that was not sent, because a batch before it failed (`cause`). It is
 * certainly not in the topic; of the records of the failed batch that may be unknown.
 */
export class NotSent extends TopicsError {}

type Kind = new (message: string, facts: ErrorFacts) => TopicsError;

const BY_CODE: { [code: string]: Kind } = {
  batch_too_large: BatchTooLarge,
  group_not_found: GroupNotFound,
  job_not_found: JobNotFound,
  key_required: KeyRequired,
  partition_not_found: PartitionNotFound,
  partition_required: PartitionRequired,
  record_not_found: RecordNotFound,
  record_too_large: RecordTooLarge,
  router_not_found: RouterNotFound,
  schedule_not_found: ScheduleNotFound,
  topic_not_found: TopicNotFound,
};

const BY_STATUS: { [status: number]: Kind } = {
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  413: PayloadTooLarge,
  422: TopicFull,
  429: Throttled,
  503: NotReady,
};

/**
 * Codes of a WebSocket's errors, which have no status (§7.7), and the status that HTTP gives each.
 */
const SOCKET_STATUS: { [code: string]: number } = {
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  payload_too_large: 413,
  topic_full: 422,
  throttled: 429,
  internal: 500,
  not_ready: 503,
  shutting_down: 503,
  not_leader: 503,
  replica_behind: 503,
  not_a_queue: 409,
  partitioned: 409,
};

/** `error` of an envelope (§0.5). */
export interface ErrorBody {
  code: string;
  message: string;
  detail?: { [name: string]: unknown };
}

/** `error` of a body that is not of 2xx; undefined where there is none, as on a proxy's page. */
export function errorBody(text: string): ErrorBody | undefined {
  try {
    const { error } = JSON.parse(text);
    return typeof error?.code === "string" ? error : undefined;
  } catch {
    return undefined;
  }
}

/** The error for an answer that is not 2xx. */
export function errorOf(status: number, text: string, retry_after_ms?: number): TopicsError {
  const error = errorBody(text);
  if (error === undefined) return badAnswer(`HTTP ${status} without an error envelope`, status);
  const { code, message, detail } = error;
  return new (BY_CODE[code] ?? kindOf(status))(message, { code, status, detail, retry_after_ms });
}

/** The error for an `error` event of a stream, which has a status and no code (§7.5). */
export function streamError(status: number, message: string, retry_after_ms: number): TopicsError {
  return new (kindOf(status))(message, { code: "stream_ended", status, retry_after_ms });
}

/** The error for an `error` message of a WebSocket, which has a code and no status (§7.7). */
export function socketError(error: ErrorBody, retry_after_ms?: number): TopicsError {
  const { code, message, detail } = error;
  const named = BY_CODE[code];
  const status = SOCKET_STATUS[code] ?? (named?.prototype instanceof NotFound ? 404 : 400);
  return new (named ?? kindOf(status))(message, { code, status, detail, retry_after_ms });
}

/** The error for an answer that this API has not. */
export function badAnswer(message: string, status: number, cause?: unknown): BadAnswer {
  return new BadAnswer(message, { code: "bad_answer", status, cause });
}

/** The error where no answer came. */
export function unreachable(message: string, cause?: unknown): Unreachable {
  return new Unreachable(message, { code: "unreachable", status: 0, cause });
}

function kindOf(status: number): Kind {
  return BY_STATUS[status] ?? (status < 500 ? InvalidRequest : ServerFault);
}
