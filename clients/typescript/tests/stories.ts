// What stories share: the server beside them, names, and items of streams.

import { afterAll, beforeAll, inject } from "vitest";
import { Client, type ClientOptions } from "../src/index.js";
import { Server } from "./server.js";

const own = Math.random().toString(36).slice(2, 8);
let names = 0;

/** A name that no other test has, in any file. */
export function fresh(kind = "t"): string {
  return `${kind}-${own}-${++names}`;
}

/** The server of all files (`shared-server`), which no test stops. */
export const shared = {
  get url(): string {
    return inject("url");
  },
  client(options: ClientOptions = {}): Client {
    return new Client(this.url, options);
  },
};

/**
 * A server for all tests of a file.
 *
 * @param settings `TOPICS_` variables, without the prefix
 */
export function useServer(settings: { [name: string]: string }): Server {
  const server = new Server(settings);
  beforeAll(() => server.start());
  afterAll(() => server.stop());
  return server;
}

/** The first items of a stream. */
export async function first<T>(count: number, items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
    if (found.length === count) break;
  }
  return found;
}

/** All items of a stream. */
export function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  return first(Infinity, items);
}
