// Who is connected (§8.9): a table of streams, WebSockets, workers, requests that wait and Kafka connections, a
// page at a time.
//
// A page looks at a bounded number of clients, so it may be short, or empty, before the last one.

import { getJson, onKey, why } from "./api.js";
import { $, button, clock, digits, link, make, set, show } from "./dom.js";

const PAGE = 50, REQUESTS_MAX = 10;
const COLUMNS = ["Kind", "Name", "Key", "Address", "Since", "Lag", "In flight", "Topics"], NUMBERS = ["Lag", "In flight"];
const KINDS = { watch: "stream", websocket: "WebSocket", work: "worker", read: "waiting read", claim: "waiting claim", job: "waits for a job", kafka: "Kafka" };

/** A page of clients: those behind one of them, of a topic or of all. */
export async function askClients(topic, after, limit = PAGE) {
  const asked = new URLSearchParams({ limit, ...(topic && { topic }), ...(after && { after }) }), clients = [];
  for (let n = 0; ; n++) {
    const page = await getJson("/v0/clients?" + asked);
    clients.push(...page.clients);
    if (clients.length >= limit || page.next_after === null || n === REQUESTS_MAX) return { ...page, clients };
    asked.set("after", page.next_after);
    asked.set("limit", limit - clients.length);
  }
}

const place = ({ topic, partition, seq, lag }) => {
  const at = [seq !== undefined && "at " + digits(seq), lag && `${digits(lag)} behind`].filter(Boolean).join(", ");
  return make("span", "of-client", link(partition ? `${topic}#${partition}` : topic, "#/topics/" + topic), make("span", "soft", at && " " + at));
};

function row(client) {
  const { topics, topic_count: count } = client, more = count - topics.length;
  const name = [client.node, client.group && "group " + client.group, client.agent].filter(Boolean).join(" · ");
  const cells = [
    KINDS[client.kind] ?? client.kind, name, client.key ?? "", client.address, clock(client.since_ms).replace(/\.\d+$/, ""),
    client.lag === undefined ? "" : digits(client.lag), client.in_flight === undefined ? "" : digits(client.in_flight),
  ].map((text) => make("td", "", text));
  const made = make("tr", "", ...cells, make("td", "wide", ...topics.map(place), ...(more > 0 ? [make("span", "soft", `${digits(more)} more`)] : [])));
  [...made.cells].forEach((cell, i) => {
    cell.dataset.label = COLUMNS[i];
    cell.classList.toggle("number", NUMBERS.includes(COLUMNS[i]));
    cell.classList.toggle("void", !cell.textContent);
  });
  if (client.lag) made.cells[5].classList.add("late");
  return made;
}

/** A table with its pages, in a box. */
export class ClientTable {
  constructor(box, nobody) {
    this.trouble = make("p", "bar trouble");
    this.trouble.setAttribute("role", "alert");
    this.list = make("tbody");
    this.nobody = make("p", "empty", nobody);
    this.range = make("span", "soft range");
    this.range.setAttribute("role", "status");
    this.first = button("« First", () => this.open(this.topic));
    this.next = button("Next ›", () => { this.at++; this.anew(); });
    const heads = COLUMNS.map((label) => make("th", NUMBERS.includes(label) ? "number" : "", label));
    this.pages = make("div", "bar tools", make("span", "switch", this.first, this.next), this.range);
    const scroll = make("div", "scroll", make("table", "cards", make("thead", "", make("tr", "", ...heads)), this.list), this.nobody);
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.ariaLabel = "Clients";
    box.append(this.pages, this.trouble, scroll);
    onKey(() => this.open(this.topic));
    this.open("");
  }

  /** Begin with the first page of a topic's clients, or of all. */
  open(topic) {
    Object.assign(this, { topic, afters: [""], at: 0, page: null });
    this.draw();
    show(this.trouble, false);
  }

  /** Ask for the page on show again. */
  async refresh(isCurrent = () => true) {
    const { topic, at } = this, isMine = () => isCurrent() && topic === this.topic && at === this.at;
    try {
      const page = await askClients(topic, this.afters[at]);
      if (!isMine()) return;
      this.page = page;
      this.afters[at + 1] = page.next_after;
      show(this.trouble, false);
    } catch (error) {
      if (!isMine()) return;
      this.page = null;
      set(this.trouble, why(error));
      show(this.trouble, true);
    }
    this.draw();
  }

  anew() { this.page = null; this.draw(); this.refresh(); }

  draw() {
    const { page, at } = this, clients = page?.clients ?? [];
    this.list.replaceChildren(...clients.map(row));
    set(this.range, clients.length ? `page ${digits(at + 1)}, ${digits(clients.length)}${page.next_after === null ? "" : "+"} clients` : "");
    this.first.disabled = !at;
    this.next.disabled = !page || page.next_after === null;
    show(this.list.parentNode, clients.length > 0);
    show(this.pages, at > 0 || !this.next.disabled || clients.length > 0);
    show(this.nobody, Boolean(page) && !clients.length);
  }
}

const table = new ClientTable($("clients"), "Nobody is connected who waits or is streamed to.");

export const refreshClients = (isCurrent) => table.refresh(isCurrent);

$("clients-find").onsubmit = (event) => {
  event.preventDefault();
  table.open($("clients-topic").value.trim());
  table.refresh();
};
