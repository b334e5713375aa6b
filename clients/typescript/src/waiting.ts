// Waits that a signal ends, and a signal that time ends.

/**
 * Resolves after that many milliseconds; rejects with the signal's reason where that is aborted
 * before.
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** A promise that is settled from outside. */
export class Settled<T> {
  resolve!: (value: T) => void;
  reject!: (error: unknown) => void;
  readonly promise = new Promise<T>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor() {
    // A failure that nobody asks for ends no process.
    this.promise.catch(() => {});
  }
}

/** A signal that is aborted when a time is over, or another signal is. */
export class Deadline {
  /** The time was over. */
  isOver = false;
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #outer: AbortSignal | undefined;

  constructor(outer?: AbortSignal) {
    this.#outer = outer;
    if (outer?.aborted) this.#outerAborted();
    else outer?.addEventListener("abort", this.#outerAborted);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The time begins anew. */
  start(ms: number): void {
    this.stop();
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#controller.abort();
    }, ms);
  }

  /** No time runs. */
  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Let go of the timer and of the other signal; what uses the signal goes on. */
  end(): void {
    this.stop();
    this.#outer?.removeEventListener("abort", this.#outerAborted);
  }

  abort(reason?: unknown): void {
    this.end();
    this.#controller.abort(reason);
  }

  readonly #outerAborted = (): void => this.abort(this.#outer!.reason);
}
