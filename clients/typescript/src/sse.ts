// Server-sent events, parsed from pieces of any size.
//
// Owns the grammar of `text/event-stream` as the HTML standard has it. It knows neither what an
// event means nor where bytes come from. Invariant: the cuts between the pieces make no difference.

/** One event. */
export interface ServerEvent {
  /**
   * Its `event` field, "message" without one; "" is a comment, or a pause that the server asks for.
   */
  kind: string;
  /** Its `data` lines, joined by line feeds. */
  data: string;
  /** The last `id` of the stream so far; undefined before the first. */
  id: string | undefined;
  /**
   * The `retry` field: the pause that the server wants before a new connection, in milliseconds.
   */
  retry_ms?: number;
}

/** Parses one connection's bytes; an unfinished event is dropped with its connection. */
export class EventParser {
  readonly #decoder = new TextDecoder();
  /** An unfinished line, in the pieces that it came in: they are joined once, at its end. */
  #pieces: string[] = [];
  #wasCr = false;
  #kind = "";
  #data: string[] = [];
  #id: string | undefined;

  /** What a piece of the stream completes, in order. */
  feed(piece: Uint8Array): ServerEvent[] {
    return this.#lines(this.#decoder.decode(piece, { stream: true })).flatMap(
      (line) => this.#parse(line) ?? [],
    );
  }

  #lines(text: string): string[] {
    // The CR ended the line; waiting for an LF that may never come would hold it back.
    if (this.#wasCr && text.startsWith("\n")) text = text.slice(1);
    if (text !== "") this.#wasCr = text.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    if (lines.length > 1) {
      lines[0] = this.#pieces.join("") + lines[0];
      this.#pieces = [];
    }
    this.#pieces.push(lines.pop()!);
    return lines;
  }

  #parse(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    const [, name, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!;
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#kind = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "" || name === "retry") {
      const retry_ms = name && /^\d+$/.test(value) ? +value : undefined;
      return { kind: "", data: "", id: this.#id, retry_ms };
    }
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    const kind = this.#kind;
    const data = this.#data;
    const id = this.#id;
    this.#kind = "";
    this.#data = [];
    // An event without data is none, but its id counts: a stream begins with such a block.
    return { kind: data.length === 0 ? "" : kind || "message", data: data.join("\n"), id };
  }
}
