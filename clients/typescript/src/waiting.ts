// Waits that a signal ends, and a signal that time ends.

/** The longest time that a timer keeps; one of more would be over at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Call something after that many milliseconds, or after 24 days where they are more. */
export function after(ms: number, call: () => void): ReturnType<typeof setTimeout> {
  return setTimeout(call, Math.min(ms, TIMER_MS_MAX));
}

/** Call something once, when a signal is aborted; returns what ends that. */
export function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  signal?.addEventListener("abort", call, { once: true });
  return () => signal?.removeEventListener("abort", call);
}

/**
 * Resolves after that many milliseconds; rejects with the signal's reason where that is aborted
 * before.
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal!.reason);
    });
    const timer = after(ms, () => {
      forget();
      resolve();
    });
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
  readonly #forget: () => void;

  constructor(outer?: AbortSignal) {
    const aborted = () => this.abort(outer!.reason);
    this.#forget = onAbort(outer, aborted);
    if (outer?.aborted) aborted();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The time begins anew. */
  start(ms: number): void {
    this.stop();
    this.#timer = after(ms, () => {
      this.isOver = true;
      this.#controller.abort();
    });
  }

  /** No time runs. */
  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Let go of the timer and of the other signal; what uses the signal goes on. */
  end(): void {
    this.stop();
    this.#forget();
  }

  abort(reason?: unknown): void {
    this.end();
    this.#controller.abort(reason);
  }
}
