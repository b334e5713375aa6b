// Names that no other client draws: idempotency keys and names of workers.

/** Hexadecimal text of that many random bytes. */
export function randomHex(bytes: number): string {
  const drawn = new Uint8Array(bytes);
  // Node 18 has no global `crypto`. The names need to be unique, and not secret.
  if (globalThis.crypto) crypto.getRandomValues(drawn);
  else drawn.forEach((_, at) => (drawn[at] = Math.random() * 256));
  return Array.from(drawn, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
