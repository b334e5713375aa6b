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
  /** @internal There was no connection, so that the request cannot have arrived. */
  isUnsent?: boolean;
  /** @internal The server was silent for too long. */
  isSilence?: boolean;
}

/** A call that did not succeed. */
export interface TopicsError extends ErrorFacts {
  readonly detail: { [name: string]: unknown };
}

export class TopicsError extends Error {
  constructor(message: string, { cause, ...facts }: ErrorFacts) {
    super(message, cause === undefined ? undefined : { cause });
    Object.assign(this, facts).detail ??= {};
  }
}
TopicsError.prototype.name = "TopicsError";

type Kind = new (message: string, facts: ErrorFacts) => TopicsError;

/** Classes by codes: the words of their names, in small letters. */
const BY_CODE: { [code: string]: Kind } = {};
const BY_STATUS: { [status: number]: Kind } = {};

/**
 * A class of errors; its name is a text, which stays as it is where a page's code is minified. A
 * class of a code or a status is there also where a page does not import it: those are made without
 * the mark by which a bundler leaves out the others.
 *
 * @param status of all answers that are of no other class
 */
function kind(name: string, Base: Kind = TopicsError, status?: number): Kind {
  const Named = { [name]: class extends Base {} }[name]!;
  Named.prototype.name = name;
  if (status) (BY_STATUS[status] = Named).prototype.status = status;
  return (BY_CODE[name.replace(/\B[A-Z]/g, "_$&").toLowerCase()] = Named);
}

/** No answer came: nothing listens at the address, the connection broke, or it took too long. */
export const Unreachable = /* @__PURE__ */ kind("Unreachable");
export type Unreachable = TopicsError;

/** An answer came that is not in the form of this API: is the URL that of a `topics` server? */
export const BadAnswer = /* @__PURE__ */ kind("BadAnswer");
export type BadAnswer = TopicsError;

/** 400 and other 4xx: the request is wrong, and sending it again does not help. */
export const InvalidRequest = /* @__PURE__ */ kind("InvalidRequest");
export type InvalidRequest = TopicsError;

/** More records in one write than the server takes. */
export const BatchTooLarge = kind("BatchTooLarge", InvalidRequest);
export type BatchTooLarge = TopicsError;

/** One record's data and meta exceed the server's bound. */
export const RecordTooLarge = kind("RecordTooLarge", InvalidRequest);
export type RecordTooLarge = TopicsError;

/** 422: the topic is compacted, and a record has neither a tag nor a key; nothing was appended. */
export const KeyRequired = kind("KeyRequired", InvalidRequest);
export type KeyRequired = TopicsError;

/** 413: the body exceeds the server's bound. */
export const PayloadTooLarge = kind("PayloadTooLarge", InvalidRequest, 413);
export type PayloadTooLarge = TopicsError;

/** 400: the topic has several partitions, and the call says none. */
export const PartitionRequired = kind("PartitionRequired", InvalidRequest);
export type PartitionRequired = TopicsError;

/** 401: the request has no key, or one that the server does not know. */
export const Unauthorized = kind("Unauthorized", TopicsError, 401);
export type Unauthorized = TopicsError;

/** 403: the key, or the origin of the page, does not allow this call. */
export const Forbidden = kind("Forbidden", TopicsError, 403);
export type Forbidden = TopicsError;

/** 404: what the call names does not exist. */
export const NotFound = kind("NotFound", TopicsError, 404);
export type NotFound = TopicsError;

/** 404: the topic does not exist, and the call does not create it. */
export const TopicNotFound = kind("TopicNotFound", NotFound);
export type TopicNotFound = TopicsError;

/** 404: the topic has no partition of this number. */
export const PartitionNotFound = kind("PartitionNotFound", NotFound);
export type PartitionNotFound = TopicsError;

/** 404: the router does not exist. */
export const RouterNotFound = kind("RouterNotFound", NotFound);
export type RouterNotFound = TopicsError;

/** 404: the schedule does not exist. */
export const ScheduleNotFound = kind("ScheduleNotFound", NotFound);
export type ScheduleNotFound = TopicsError;

/** 404: no record of the topic has the tag. */
export const RecordNotFound = kind("RecordNotFound", NotFound);
export type RecordNotFound = TopicsError;

/** 404: the queue has no such job, and keeps nothing of it. */
export const JobNotFound = kind("JobNotFound", NotFound);
export type JobNotFound = TopicsError;

/** 404: the group of consumers does not exist, or has expired. */
export const GroupNotFound = kind("GroupNotFound", NotFound);
export type GroupNotFound = TopicsError;

/** 409: the state of the topic, the group, the job or the watch session forbids the call. */
export const Conflict = kind("Conflict", TopicsError, 409);
export type Conflict = TopicsError;

/** 422: a topic with `discard: "reject"` has no room; nothing was appended. */
export const TopicFull = kind("TopicFull", TopicsError, 422);
export type TopicFull = TopicsError;

/** 429: a cap was reached or the server was under load, and still was when the retries ended. */
export const Throttled = kind("Throttled", TopicsError, 429);
export type Throttled = TopicsError;

/** 503: the server replays its log, or shuts down. */
export const NotReady = kind("NotReady", TopicsError, 503);
export type NotReady = TopicsError;

/**
 * 500 and other 5xx. Whether a write took effect is unknown; sent again under the same idempotency
 * key, it takes effect once.
 */
export const ServerFault = /* @__PURE__ */ kind("ServerFault");
export type ServerFault = TopicsError;

/**
 * A worker's lease ran out before its job was done. It is given to `on_error`, and never thrown.
 */
export const LeaseLost = /* @__PURE__ */ kind("LeaseLost");
export type LeaseLost = TopicsError;

/**
 * A record of a producer that was not sent, because a batch before it failed (`cause`). It is
 * certainly not in the topic; of the records of the failed batch that may be unknown.
 */
export const NotSent = /* @__PURE__ */ kind("NotSent");
export type NotSent = TopicsError;

/**
 * Codes of a WebSocket's errors, which have no status (§7.7), and the status that HTTP gives each;
 * without those that a class is named after.
 */
const SOCKET_STATUS: { [code: string]: number } = {
  internal: 500,
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
  if (!error) return badAnswer(`HTTP ${status} without an error envelope`, status);
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
  const status = SOCKET_STATUS[code] ?? named?.prototype.status ?? 400;
  return new (named ?? kindOf(status))(message, { code, status, detail, retry_after_ms });
}

/** The error for an answer that this API has not. */
export function badAnswer(message: string, status: number, cause?: unknown): BadAnswer {
  return new BadAnswer(message, { code: "bad_answer", status, cause });
}

/** The error where no answer came. */
export function unreachable(message: string, more: Partial<ErrorFacts> = {}): Unreachable {
  return new Unreachable(message, { code: "unreachable", status: 0, ...more });
}

function kindOf(status: number): Kind {
  return BY_STATUS[status] ?? (status < 500 ? InvalidRequest : ServerFault);
}
