// Routers, schedules and groups over a real server.

import { expect, test } from "vitest";
import {
  Group,
  GroupNotFound,
  Router,
  RouterNotFound,
  Schedule,
  ScheduleNotFound,
} from "../src/index.js";
import { all, fresh, shared } from "./stories.js";

test("a router copies what matches, and is listed (§6)", async () => {
  const client = shared.client();
  const [source, dest] = [fresh(), fresh()];
  const router = new Router(client, `${source}-${dest}`);

  const made = await router.put({ source, dest, filter: "eu.1" });
  await client.topic(source).appendBatch([
    { data: 1, tag: "eu.1" },
    { data: 2, tag: "us.1" },
  ]);
  const [page] = await all(client.topic(dest).read());

  expect(made.created).toBe(true);
  expect(page!.records.map(({ data }) => data)).toEqual([1]);
  expect((await router.state()).forwarded_total).toBe(1);
  expect((await all(Router.list(client, { source }))).map((each) => each.router)).toEqual([
    router.name,
  ]);
  expect((await router.delete()).deleted).toBe(true);
  await expect(router.state()).rejects.toThrow(RouterNotFound);
});

test("a schedule appends when it is told, and can rest (§14)", async () => {
  const client = shared.client();
  const topic = fresh();
  const schedule = new Schedule(client, fresh("s"));

  await schedule.put({
    topic,
    record: { data: "report" },
    cron: "0 6 * * 1-5",
    tz: "Europe/Berlin",
  });
  const { seq } = await schedule.run();
  const paused = await schedule.pause();
  const resumed = await schedule.resume();

  expect(seq).toBe(1);
  expect([paused.paused, resumed.paused]).toEqual([true, false]);
  expect(await schedule.state()).toMatchObject({
    cron: "0 6 * * 1-5",
    fired_total: expect.any(Number),
  });
  expect((await all(Schedule.list(client, { topic }))).length).toBe(1);
  expect((await schedule.delete()).deleted).toBe(true);
  await expect(schedule.state()).rejects.toThrow(ScheduleNotFound);
});

test("a group keeps where its readers are (§13)", async () => {
  const client = shared.client();
  const topic = fresh();
  const group = new Group(client, fresh("g"));
  await client.topic(topic).appendBatch([1, 2, 3].map((data) => ({ data })));

  const { committed } = await group.commit([{ topic, seq: 2 }]);
  const [offset] = await all(group.offsets());

  expect(committed).toBe(1);
  expect(offset).toMatchObject({ topic, partition: 0, seq: 2, lag: 1, lost: 0 });
  expect((await group.state()).members).toEqual([]);
  expect(
    (await all(Group.list(client, { prefix: group.name }))).map((each) => each.group),
  ).toContain(group.name);
  expect((await group.delete()).deleted).toBe(true);
  await expect(group.state()).rejects.toThrow(GroupNotFound);
});
