// `Server`: how a client's server is. Making one sends nothing.

import { list } from "./lists.js";
import type {
  Cluster,
  ConnectedClient,
  Health,
  Limits,
  Metrics,
  Ready,
  Signalled,
} from "./models.js";
import type { Connected } from "./resource.js";
import type { Call, Session } from "./session.js";

/** The server of a client (§8). */
export class Server {
  readonly #session: Session;

  constructor(client: Connected) {
    this.#session = client.session;
  }

  /** Whether the process answers (§8.1). A refusal is not retried. */
  health({ signal }: Signalled = {}): Promise<Health> {
    return this.#get("health", { patient: false, signal });
  }

  /** Whether the server serves; `NotReady` at once while it replays its log or stops (§8.2). */
  ready({ signal }: Signalled = {}): Promise<Ready> {
    return this.#get("ready", { patient: false, signal });
  }

  /** The server's metrics as one object (§8.3). */
  metrics({ signal }: Signalled = {}): Promise<Metrics> {
    return this.#get("metrics", { patient: false, signal });
  }

  /** The limits in force (§8.4). */
  limits({ signal }: Signalled = {}): Promise<Limits> {
    return this.#get("limits", { signal });
  }

  /** The cluster that the server is in; `enabled` is false where it is in none (§8.7). */
  cluster({ signal }: Signalled = {}): Promise<Cluster> {
    return this.#get("cluster", { signal });
  }

  /** Who is connected, or who of them has to do with a topic; in a cluster, to the node that answers (§8.9). */
  clients({ signal, ...params }: Signalled<{ topic?: string }> = {}): AsyncGenerator<
    ConnectedClient,
    void,
    undefined
  > {
    const call = { path: "/v0/clients", params, signal };
    return list(this.#session, call, "clients", ["next_after", "after", "limit"]);
  }

  #get(what: string, more: Partial<Call>): Promise<any> {
    return this.#session.do({ method: "GET", path: `/v0/${what}`, ...more });
  }
}
