// What the types say to a program; it is compiled, and not run.

import { Client, Queue, Socket, type Page, type WatchPage } from "topics-client";

interface Order {
  id: number;
}

export async function use(client: Client): Promise<void> {
  const orders = client.topic<Order>("orders");
  await orders.append({ id: 1 }, { tag: "eu", priority: 3 });
  // @ts-expect-error the data are of another type
  await orders.append({ id: "1" });
  // @ts-expect-error no such option
  await orders.append({ id: 1 }, { tga: "eu" });
  for await (const page of orders.read({ follow: true })) {
    const typed: Page<Order> = page;
    typed.records.map(({ data }) => data.id.toFixed());
    typed.tombstone?.gap_from.toFixed();
  }
  for await (const page of client.watch<Order>({ orders: 7, audit: { tail: true } })) {
    const typed: WatchPage<Order> = page;
    typed.records.map(({ data, seq }) => data.id + seq);
  }
  const socket = new Socket(client);
  await socket.publish("orders", [{ data: { id: 1 } }], { create: false });
  // @ts-expect-error no such option
  await socket.publish("orders", [{ data: { id: 1 } }], { foo: 1 });
  // @ts-expect-error no such option
  socket.watch("orders", { form: 1 });
  const queue = new Queue<Order>(client, "jobs");
  await queue.put({ max_deliveries: 3, dead_letter: "jobs.dead" });
  await queue.work(async (job) => job.data.id, { keep_results: true }).done;
  (await queue.state()).config.lease_ms.toFixed();
}
