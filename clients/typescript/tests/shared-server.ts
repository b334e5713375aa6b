// One server for the tests that need none of their own.

import type { TestProject } from "vitest/node";
import { Server } from "./server.js";

declare module "vitest" {
  export interface ProvidedContext {
    url: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await new Server().start();
  project.provide("url", server.url);
  return () => server.stop();
}
