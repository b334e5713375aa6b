/// <reference lib="esnext.disposable" preserve="true" />

// The client of `topics`, a persistent event engine with an HTTP API.

export { Client, type ClientOptions } from "./client.js";
export type { AppendedMany, BatchOptions, ManyOptions, WriteOptions } from "./batches.js";
export type { OnConnection } from "./connection.js";
export {
  TopicsError,
  Unreachable,
  BadAnswer,
  InvalidRequest,
  BatchTooLarge,
  RecordTooLarge,
  KeyRequired,
  PayloadTooLarge,
  PartitionRequired,
  Unauthorized,
  Forbidden,
  NotFound,
  TopicNotFound,
  PartitionNotFound,
  RouterNotFound,
  ScheduleNotFound,
  RecordNotFound,
  JobNotFound,
  GroupNotFound,
  Conflict,
  TopicFull,
  Throttled,
  NotReady,
  ServerFault,
  LeaseLost,
  NotSent,
  type ErrorFacts,
} from "./errors.js";
export { Group } from "./group.js";
export { HeldJob, type JobState, type NackOptions } from "./held-job.js";
export type * from "./models.js";
export type { Begin, WatchPage, WatchTopics } from "./places.js";
export { Producer, type ProducerOptions, type Sent } from "./producer.js";
export { Queue, type JobChoice, type Named } from "./queue.js";
export type { Page, PageOptions, ReadOptions, ReadPlace } from "./reading.js";
export type { Retry } from "./retry.js";
export { Router } from "./router.js";
export { Schedule } from "./schedule.js";
export { Server } from "./server.js";
export { Socket, type SocketOptions } from "./socket.js";
export { SocketWatch, type SocketWatchOptions } from "./socket-watch.js";
export { Topic, type StablePage, type StablePageOptions } from "./topic.js";
export { Watch, type WatchOptions } from "./watch.js";
export { Worker, type Handler, type WorkOptions } from "./worker.js";
