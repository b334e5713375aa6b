// Waits and deadlines, by a clock that the test moves.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Deadline, sleep } from "../src/waiting.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each([Infinity, 2 ** 31])("a time of %d ms is not over at once", async (ms) => {
  const deadline = new Deadline();
  let isAwake = false;

  deadline.start(ms);
  void sleep(ms).then(() => (isAwake = true));
  await vi.advanceTimersByTimeAsync(86_400_000);

  expect([deadline.isOver, isAwake]).toEqual([false, false]);
});
