// A real server of the repository: started, killed, started again on the same data and port.

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client, type ClientOptions } from "../src/index.js";

const ROOT = resolve(import.meta.dirname, "../../..");
const PYTHON = process.env.TOPICS_PYTHON ?? join(ROOT, ".venv/bin/python");
const DEADLINE_MS = 100_000;

/** Resolves once a probe is true; it is asked again and again. */
export async function until(what: string, probe: () => unknown): Promise<void> {
  const end_ms = Date.now() + DEADLINE_MS;
  while (!(await probe())) {
    if (Date.now() > end_ms) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export class Server {
  readonly home = mkdtempSync(join(tmpdir(), "topics-ts-"));
  port = 0;
  private process: ChildProcess | undefined;
  private ended: Promise<unknown> | undefined;

  /** @param settings `TOPICS_` variables, without the prefix */
  constructor(private readonly settings: { [name: string]: string } = {}) {}

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  client(options: ClientOptions = {}): Client {
    return new Client(this.url, options);
  }

  async start(): Promise<this> {
    const port_file = join(this.home, "port");
    rmSync(port_file, { force: true });
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("TOPICS_"));
    const given = {
      PORT: String(this.port),
      PORT_FILE: port_file,
      DATA_DIR: join(this.home, "data"),
      ...this.settings,
    };
    const settings = Object.entries(given).map(([name, value]) => [`TOPICS_${name}`, value]);
    const log = openSync(join(this.home, "log"), "a");
    this.process = spawn(PYTHON, ["-m", "topics", "serve"], {
      ...{ cwd: this.home, stdio: ["ignore", log, log] },
      env: Object.fromEntries([...kept, ...settings, ["PYTHONPATH", ROOT]]),
    });
    this.ended = new Promise((resolve) => this.process!.once("exit", resolve));
    await until("the port file", () => existsSync(port_file) || this.checkAlive());
    this.port = Number(readFileSync(port_file, "utf8").trim().split(":").at(-1));
    await until("ready", () =>
      fetch(`${this.url}/v0/ready`).then(
        ({ ok }) => ok,
        () => this.checkAlive(),
      ),
    );
    return this;
  }

  /** SIGKILL: the kernel lives on, so that everything that was written is there. */
  async kill(): Promise<void> {
    this.process!.kill("SIGKILL");
    await this.ended;
  }

  async stop(): Promise<void> {
    this.process?.kill("SIGTERM");
    await this.ended;
    rmSync(this.home, { recursive: true, force: true });
  }

  private checkAlive(): false {
    if (this.process!.exitCode !== null)
      throw new Error(readFileSync(join(this.home, "log"), "utf8"));
    return false;
  }
}
