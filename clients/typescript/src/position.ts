// What a client has written, as a cluster counts it; so that it reads its own writes.
//
// A node of a cluster says with the answer to a write how far the cluster's log had come. Each
// later request of the client says so in turn, and a node that is behind waits. A server that is in
// no cluster says nothing, and is told nothing.

export const POSITION_HEADER = "x-topics-position";

/** The greatest position that any answer had. */
export class LastPosition {
  /** As requests carry it; undefined before the first. */
  text: string | undefined;
  #shard = -1;
  #index = -1;

  note(given: string | null | undefined): void {
    // Another form is a later version's, which this client cannot compare.
    const found = /^(\d+)\.(\d+)$/.exec(given ?? "");
    if (!found) return;
    const shard = +found[1]!;
    const index = +found[2]!;
    if (shard < this.#shard || (shard === this.#shard && index <= this.#index)) return;
    this.text = given!;
    this.#shard = shard;
    this.#index = index;
  }
}
