// In a real browser: a page of another origin, which the server allows, over a kill of the server.

import { execFileSync } from "node:child_process";
import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import { build } from "esbuild";
import { chromium, type Browser, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import type * as Topics from "../src/index.js";
import { Server } from "./server.js";

const ARGUMENTS = [
  "--no-sandbox", // root may not have one; it only ever opens our own page
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const NAMES = [
  "chromium-headless-shell",
  "chromium",
  "chromium-browser",
  "google-chrome-stable",
  "google-chrome",
];
const KEY = "tk_page";

function installed(): string | undefined {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of NAMES) {
    try {
      return execFileSync("which", [name], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
      }).trim();
    } catch {
      // The next one.
    }
  }
  return undefined;
}

const executablePath = installed();
let site: HttpServer;
let server: Server;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  if (executablePath === undefined) return;
  const entry = resolve(import.meta.dirname, "../src/index.ts");
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    format: "esm",
    write: false,
  });
  const code = Buffer.from(outputFiles[0]!.contents);
  site = createServer((request, response) => {
    const isCode = request.url === "/topics.js";
    response.setHeader("content-type", isCode ? "text/javascript" : "text/html");
    response.end(isCode ? code : "<!doctype html><title>a page</title>");
  });
  await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  server = await new Server({
    API_KEYS: `${KEY}:read+write+admin`,
    ALLOWED_ORIGINS: origin,
  }).start();
  browser = await chromium.launch({ executablePath, args: ARGUMENTS });
  page = await browser.newPage();
  await page.goto(origin);
  await page.evaluate(`import("/topics.js").then((topics) => (window.topics = topics))`);
  await page.evaluate(
    ([url, key]) => {
      const { Client } = (window as any).topics as typeof Topics;
      (window as any).client = new Client(url, { api_key: key, retry: { for_ms: 100_000 } });
    },
    [server.url, KEY],
  );
});

afterAll(async () => {
  await browser?.close();
  await server?.stop();
  site?.close();
});

const inBrowser = test.skipIf(executablePath === undefined);

inBrowser(
  "a page appends, reads, watches and works, with its key in a header (§0.11)",
  async () => {
    const seen = await page.evaluate(async () => {
      const { Producer, Queue, InvalidRequest } = (window as any).topics as typeof Topics;
      const client: Topics.Client = (window as any).client;
      const topic = client.topic<number>("paged");
      const producer = new Producer<number>(topic);
      for (let n = 0; n < 5; n++) await producer.send(n);
      await producer.close();
      const read: number[] = [];
      for await (const { records } of topic.read({ page_records: 2 }))
        read.push(...records.map(({ data }) => data));
      const watched: number[] = [];
      for await (const { records } of topic.watch({ from: 2 })) {
        watched.push(...records.map(({ data }) => data));
        if (watched.length === 3) break;
      }
      const queue = new Queue<string>(client, "paged-q");
      await queue.put();
      await queue.append("job");
      const done = await queue.work(() => {}, { drain: true }).done;
      const pushed = queue.work(() => {}, { push: true, limit: 1 });
      await queue.append("another");
      const stable = await topic.stablePage();
      const error = await topic
        .append(1, { tga: "x" } as {})
        .catch((error) => error instanceof InvalidRequest);
      return {
        read,
        watched,
        done,
        pushed: await pushed.done,
        etag: stable.etag !== "",
        same: (await topic.stablePage({ known: stable })) === stable,
        error,
      };
    });

    expect(seen).toEqual({
      read: [0, 1, 2, 3, 4],
      watched: [2, 3, 4],
      done: 1,
      pushed: 1,
      etag: true,
      same: true,
      error: true,
    });
  },
);

inBrowser(
  "a watch and a producer of a page lose and double nothing over a kill (§7.4, §0.8)",
  async () => {
    await page.evaluate(async () => {
      const { Producer } = (window as any).topics as typeof Topics;
      const topic = ((window as any).client as Topics.Client).topic<number>("kept");
      await topic.append(0);
      const seen: number[] = ((window as any).seen = []);
      (window as any).producer = new Producer<number>(topic);
      (window as any).following = (async () => {
        for await (const { records } of topic.watch()) {
          seen.push(...records.map(({ data }) => data));
          if (seen.length >= 100) return;
        }
      })();
    });
    await page.waitForFunction(() => (window as any).seen.length === 1);
    await server.kill();
    const sending = page.evaluate(async () => {
      const producer: Topics.Producer<number> = (window as any).producer;
      for (let n = 1; n < 100; n++) await producer.send(n);
      await producer.close();
    });
    await server.start();
    await sending;

    const seen = await page.evaluate(async () => {
      await (window as any).following;
      return (window as any).seen;
    });

    expect(seen).toEqual(Array.from({ length: 100 }, (_, n) => n));
  },
);

inBrowser("a page is told that it cannot send its key over a WebSocket (§7.7)", async () => {
  const told = await page.evaluate(async () => {
    const { Socket } = (window as any).topics as typeof Topics;
    return new Socket((window as any).client).ping().catch((error) => String(error));
  });

  expect(told).toMatch(/cannot send a key/);
});
