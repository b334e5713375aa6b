import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    globalSetup: "tests/shared-server.ts",
    // Bounds a hang on a busy machine; nothing is measured against it.
    testTimeout: 500_000,
    hookTimeout: 500_000,
    maxWorkers: 2,
  },
});
