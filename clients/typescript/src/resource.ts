// `Resource`: what a server has under a name. Making one sends nothing.

import { path, type Call, type Session } from "./session.js";

/** A client, or what is made of one. */
export interface Connected {
  /** @internal */
  readonly session: Session;
}

export abstract class Resource implements Connected {
  /** @internal */
  readonly session: Session;

  constructor(
    client: Connected,
    readonly name: string,
  ) {
    this.session = client.session;
  }

  /** Of all that are of its kind. */
  protected abstract get root(): string;

  /** @throws TypeError the name would change the path */
  protected path(action = ""): string {
    return this.root + path`/${this.name}` + action;
  }

  protected call(method: Call["method"], action = "", more: Partial<Call> = {}): Promise<any> {
    return this.session.do({ method, path: this.path(action), ...more });
  }
}
