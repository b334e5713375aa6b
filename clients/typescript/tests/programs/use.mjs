// What a program does with the package, in any runtime: `use.mjs URL`. Prints what it saw, as JSON.

import { Client, Producer, Queue, TopicNotFound } from "topics-client";

const client = new Client(process.argv[2]);
const topic = client.topic(`used-${Date.now()}-${Math.random()}`);
const seen = { read: [], watched: [], done: [], error: "" };

const producer = new Producer(topic);
for (let n = 0; n < 3; n++) await producer.send(n);
await producer.close();
for await (const { records } of topic.read()) seen.read.push(...records.map(({ data }) => data));
for await (const { records } of topic.watch()) {
  seen.watched.push(...records.map(({ data }) => data));
  if (seen.watched.length === 3) break;
}

const queue = new Queue(client, `${topic.name}-q`);
await queue.put();
await queue.append("job", { priority: 1 });
await queue.work(({ data }) => void seen.done.push(data), { drain: true }).done;
await client
  .topic("none")
  .state()
  .catch((error) => (seen.error = `${error instanceof TopicNotFound} ${error.code}`));
console.log(JSON.stringify(seen));
