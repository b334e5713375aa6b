// Lists that take several requests.

import type { Call, Session } from "./session.js";

/** Items of one request of a list: as many as a server gives by default. */
const PAGE_SIZE = 1000;

/**
 * The items of a list, page by page; the next page is asked for when it is needed.
 *
 * @param call the first page's
 * @param items the member of an answer that has them
 * @param names the member of an answer that has the next page's cursor, the parameter that takes
 *     it, and the parameter that says how long a page is
 */
export async function* list<T>(
  session: Session,
  { params, ...call }: Omit<Call, "method">,
  items: string,
  names: [member: string, cursor: string, size: string] = ["next_cursor", "cursor", "page_size"],
): AsyncGenerator<T, void, undefined> {
  const [member, param, size] = names;
  let cursor: unknown;
  do {
    const page = await session.do({
      ...call,
      method: "GET",
      params: { ...params, [size]: PAGE_SIZE, [param]: cursor },
    });
    yield* page[items];
    cursor = page[member];
  } while (cursor != null);
}
