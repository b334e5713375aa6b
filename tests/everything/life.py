"""One client that asks a real server for everything at once, and the contract's model beside it.

The model is the simulation's (`sim.model`, `sim.reading`): dicts and lists that say what each answer must
show.  What the simulation does not have is here: processes and their kills, sockets, HTTP/1.1 and HTTP/2,
readers, real files, and a clock that nobody holds.  So records near the end of their time are waited for,
and what a request did that a kill cut off is settled by what the next process shows.

Owns one server, the model, and what its watchers and its worker know.  One seed draws all that is asked
for; when processes are killed, and what they had done by then, the machine decides.
"""

import dataclasses
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from contract.api import dumps
from contract.server import DEADLINE_S, Server
from contract.streams import Ended as StreamEnded
from contract.streams import Sse1, Sse2, Truth, cut
from contract.streams import read as read_news
from contract.wire import Answer, Ended, Http1, Http2, Wire
from contract.wire import check as checked
from msgspec import UNSET
from sim.model import Entry, Model, Refused, Topic
from sim.reading import Ask, Page, check_page

from topics.protocol.model.config import TopicConfig

LOGS: Final = ("a", "b", "c")
QUEUE: Final = "q"
DEAD: Final = "dead"
COPIES: Final = "copies"
SOURCE: Final = "a"
ROUTER: Final = "r"
TAGS: Final = (None, "x", "x.1", "x.2", "y.1", "long" * 20)
NODES: Final = (None, "n1", "n2")
CLASSES: Final = ("memory", "disk", "fsync", "ephemeral")
MATCHES: Final = ("x", "x*", "y.1", "long*", "*")
SUBJECTS: Final = ((None, None), ("x", "x"), ("x.*", "x.*"), (">", ">"))
NEAR_MS: Final = 400
"""A record that expires so soon is waited for, so that it is there or gone while a request is answered."""
WORKER: Final = "w"
HOT_BYTES: Final = 4 << 20
WAL_BYTES: Final = 256 << 10


class Wrong(AssertionError):
    """The server showed what the contract does not allow."""


class Late(Exception):
    """The machine was so slow that records expired while a request was answered: what the answer had to
    show is not known."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass
class Lease:
    """A job that was claimed: until when it is held, or is not ready."""

    lease: str
    until_ms: int
    deliveries: int
    is_delayed: bool = False


@dataclass
class Watcher:
    """A client of a watch session, over all connections and sessions that it has had."""

    names: tuple[str, ...]
    kind: Any
    truth: Truth
    begun: dict[str, int]
    wid: str | None = None
    stream: Any = None


@dataclass
class Life:
    """A server through its kills and stops.

    Args:
        home: Where it has its directory.
        seed: Of what is asked for.

    Attributes:
        readers: Reader processes beside the first.
        trail: What was asked for, the newest last.
        known: The data of each seq of each instance, by (name, instance of the name).
        etags: Pages that a cache has: (ETag, text, epoch) by what was asked for.
    """

    home: Path
    seed: int
    readers: int = field(init=False)
    model: Model = field(default_factory=Model)
    trail: list[str] = field(default_factory=list)
    known: dict[str, dict[int, Any]] = field(default_factory=dict)
    held: dict[int, Lease] = field(default_factory=dict)
    watchers: list[Watcher] = field(default_factory=list)
    etags: dict[str, tuple[str, bytes, str]] = field(default_factory=dict)
    copied: list[int] = field(default_factory=list)
    routed_from: int | None = None
    dead: set[int] = field(default_factory=set)
    kills: int = 0
    stops: int = 0
    _numbers: int = 0
    _wire: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._wire = Http1(0)
        self.readers = self.rng.choice((0, 2))
        self.server = Server(
            self.home,
            wal_file_bytes=WAL_BYTES,
            segment_max_records=self.rng.choice((32, 256)),
            segment_max_age_ms=self.rng.choice((1000, 60_000)),
            hot_max_bytes=HOT_BYTES,
            readers=self.readers,
        )

    # ---------------------------------------------------------------------- its course

    def live(self, is_over: Callable[[], bool]) -> None:
        """Ask for one thing after the other until it is enough; then look at everything.

        Raises:
            AssertionError: What was wrong, and the last of what was asked for.
        """
        with self.server:
            try:
                self._connect()
                for name in LOGS:
                    self.put(name)
                self.put(QUEUE)
                self._ok("PUT", f"/v0/topics/{DEAD}", {"durability": "disk"})
                self._ok("PUT", f"/v0/topics/{COPIES}", {"durability": "disk"})
                while not is_over():
                    self._in_time(self.step)
                self._in_time(self.verify)
            except (AssertionError, Ended, StreamEnded, OSError) as why:
                where = "\n".join(self.trail[-40:])
                raise Wrong(f"seed {self.seed}, {self.readers} readers: {why!r}\n{where}") from why
            finally:
                self._close_streams()
                self._wire.reset()
            assert self.server.stop() == 0
            self.server.assert_log_is_quiet()

    def _in_time(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Late as late:
            self.recreate(late.name)

    def step(self) -> None:
        rng, name = self.rng, self.rng.choice(LOGS)
        if rng.random() < 0.05:
            self._connect()
        match rng.randrange(44):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9:
                self.append(name)
            case 10 | 11 | 12 | 13 | 14 | 15 | 16:
                self.read(name)
            case 17 | 18 | 19:
                self.delete(name)
            case 20 | 21:
                self.purge(name)
            case 22 | 23:
                self.put(name)
            case 24:
                self.recreate(name)
            case 25 | 26:
                self.page_of_cache(name)
            case 27 | 28:
                self.state(name)
            case 29 | 30 | 31:
                self.append(QUEUE)
            case 32 | 33 | 34:
                self.claim()
            case 35 | 36 | 37:
                self.finish_jobs()
            case 38 | 39:
                self.watch()
            case 40:
                self.route()
            case 41:
                self.verify()
            case 42:
                self.stop() if rng.random() < 0.4 else self.kill()
            case _:
                self.fill(name)

    def _connect(self) -> None:
        """Over another connection, of either protocol."""
        self._wire.reset()
        self._wire = (Http2 if self.rng.random() < 0.3 else Http1)(self.server.port)

    # ---------------------------------------------------------------------- asking

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        """The answer; what is refused for want of room is asked for again, and must not be for ever."""
        self.trail.append(f"{method} {target} {json.dumps(body)[:200] if body else ''}")
        end = time.monotonic() + DEADLINE_S
        while True:
            self._send(method, target, body, **headers)
            answer = checked(self._wire.receive())
            if answer.status != 429 or answer.json["error"]["code"] != "throttled":
                self._heed_time(target)
                return answer
            if time.monotonic() > end:
                raise Wrong(f"refused for ever: {answer.json}")
            time.sleep(0.05)

    def _heed_time(self, target: str) -> None:
        name = target.removeprefix("/v0/topics/").partition("/")[0].partition("?")[0]
        topic = self.model.topics.get(name)
        if topic is not None and topic.config.ttl_ms:
            last_ms = self.model.now_ms - topic.config.ttl_ms
            spent_ms = _now_ms() + 50 - self.model.now_ms
            if any(last_ms < r.ts_ms <= last_ms + spent_ms for r in topic.records.values()):
                raise Late(name)

    def _send(self, method: str, target: str, body: object, **headers: str) -> None:
        known = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            known["content-type"] = "application/json"
        self._wire.send(method, target, b"" if body is None else dumps(body), known)

    def _ok(self, method: str, target: str, body: object = None) -> Any:
        answer = self.ask(method, target, body)
        assert answer.status in (200, 201), answer
        return answer.json

    def call(self, target: str, body: object, act: Callable[[Model], dict[str, Any]]) -> Any:
        """A command and what the model says of it; None where both refuse."""
        method = "PUT" if act.__name__ == "put" else "POST"
        answer = self.ask(method, target, body)
        try:
            expected = act(self.model)
        except Refused as refused:
            said = answer.json.get("error", {}).get("code")
            _same(said, refused.code, answer.json)
            return None
        assert answer.status in (200, 201), answer
        _same({key: answer.json.get(key) for key in expected}, expected, answer.json)
        return answer.json

    def topic(self, name: str) -> Topic:
        """The model's, at a time when none of its records is about to expire."""
        topic = self.model.topics[name]
        ttl_ms = topic.config.ttl_ms
        while True:
            now_ms = int(time.time() * 1000)
            ends = [r.ts_ms + ttl_ms - now_ms for r in topic.records.values()] if ttl_ms else []
            if not any(-50 <= left <= NEAR_MS for left in ends):
                self.model.now_ms = max(self.model.now_ms, now_ms)
                topic.expire(now_ms)
                return topic
            time.sleep(0.02)

    # ---------------------------------------------------------------------- topics

    def put(self, name: str) -> None:
        rng, made = self.rng, self.model.topics.get(name)
        if made is not None:
            self.topic(name)
        if name == QUEUE:
            config = TopicConfig(
                type="queue",
                durability=made.config.durability if made else rng.choice(CLASSES[:3]),
                leases_durable=made.config.leases_durable if made else rng.random() < 0.5,
                max_deliveries=rng.choice((0, 2)),
                dead_letter=DEAD,
            )
        else:
            ttls = (0, 0, 1500) if name == "b" else (0,)
            caps = (0, 0, 5, 60, 500) if name == "c" else (0,)
            config = TopicConfig(
                durability=made.config.durability if made else self._class_of(name),
                ttl_ms=rng.choice(ttls),
                cap_records=rng.choice(caps),
                discard=rng.choice(("old", "old", "reject")),
                dedupe_node=rng.random() < 0.7,
            )
        fields = {name: getattr(config, name) for name in config.__struct_fields__}
        given = {name: value for name, value in fields.items() if value not in (None, UNSET)}

        def put(model: Model) -> dict[str, Any]:
            return model.put(name, config)

        told = self.call(f"/v0/topics/{name}", given, put)
        if told is not None:
            self.model.topics[name].epoch = self._ok("POST", f"/v0/topics/{name}/diff", {})["epoch"]
            self.known.setdefault(self.model.topics[name].epoch, {})

    def _class_of(self, name: str) -> str:
        return self.rng.choice(CLASSES if name != SOURCE else CLASSES[:3])

    def recreate(self, name: str) -> None:
        """The name goes to another instance; its watchers are done with it."""
        for watcher in [w for w in self.watchers if name in w.names]:
            self._leave(watcher)
        gone = self.model.topics.pop(name)
        answer = self._ok("DELETE", f"/v0/topics/{name}")
        _same(answer["deleted"], True, answer)
        if name == SOURCE:
            self.routed_from = None
        _same(self.ask("POST", f"/v0/topics/{name}/diff", {"from_seq": 0}).status, 404, name)
        self.put(name)
        self.append(name)
        body = {"from_seq": gone.head_seq, "epoch": gone.epoch}
        page = self._ok("POST", f"/v0/topics/{name}/diff", body)
        _same(page["tombstone"]["reason"], "recreated", page)

    # ---------------------------------------------------------------------- records

    def entries(self, count: int) -> list[Entry]:
        rng, made = self.rng, []
        filling = "." * rng.choice((0, 0, 30, 500, 5000))
        for _ in range(count):
            self._numbers += 1
            data = [self._numbers, filling]
            meta = dumps({"m": self._numbers}) if rng.random() < 0.2 else None
            made.append(Entry(dumps(data), rng.choice(TAGS), rng.choice(NODES), meta))
        return made

    def append(self, name: str, count: int | None = None) -> None:
        rng = self.rng
        entries = self.entries(count or rng.choice((1, 1, 2, 5, 40)))
        key = f"k{rng.randrange(20)}" if rng.random() < 0.3 else None
        topic = self.topic(name)

        def append(model: Model) -> dict[str, Any]:
            return model.append(name, entries, key, TopicConfig())

        told = self.call(f"/v0/topics/{name}", _batch(entries, key), append)
        if told is not None and not told["deduped"]:
            self.learn(topic, told["first_seq"], told["first_seq"] + told["count"] - 1)

    def fill(self, name: str) -> None:
        """Many records at once, so that files fill, and filters take several turns."""
        self.append(name, 400)

    def learn(self, topic: Topic, first: int, last: int, sent_ms: int | None = None) -> None:
        """The time that a batch got, and its data.

        Args:
            topic: The model's, which has the batch.
            first: Its first seq.
            last: Its last.
            sent_ms: When it was sent, where the model gave it the time of a later moment.

        Raises:
            Late: It has expired since it was sent.
        """
        for seq in range(first, last + 1):
            if seq in topic.records:
                self.known[topic.epoch][seq] = json.loads(topic.records[seq].entry.data)
        if last not in topic.records:
            return
        page = self._ok("POST", f"/v0/topics/{topic.name}/diff", {"from_seq": last - 1, "limit": 1})
        ttl_ms = topic.config.ttl_ms
        if not page["records"] and ttl_ms and sent_ms and sent_ms + ttl_ms <= _now_ms():
            raise Late(topic.name)
        assert page["records"], f"{topic.name} {last} is not there: {page}"
        ts_ms = page["records"][0]["$ts"]
        assert ts_ms >= topic_time(topic, first), f"$ts falls: {page}"
        for seq in range(first, last + 1):
            if seq in topic.records:
                topic.records[seq] = dataclasses.replace(topic.records[seq], ts_ms=ts_ms)
        topic.last_ts_ms = ts_ms

    def drawn_ask(self, topic: Topic) -> Ask:
        rng = self.rng
        marks = [0, 0, topic.head_seq, topic.evict_floor, topic.earliest(topic.head_seq)]
        nodes = rng.choice(((), (), ("n1",), ("n1", "n2")))
        return Ask(
            from_seq=max(0, rng.choice(marks) + rng.randint(-8, 2)),
            limit=rng.choice((1, 3, 50, 1000)),
            budget_bytes=rng.choice((1 << 20, 1 << 20, 2000)),
            nodes=nodes,
            match=rng.choice((None, None, *MATCHES)),
            include_tags=rng.random() < 0.3,
            include_meta=rng.random() < 0.8,
            epoch=topic.epoch if rng.random() < 0.3 else None,
        )

    def read(self, name: str) -> None:
        topic = self.topic(name)
        self.check_read(topic, self.drawn_ask(topic))

    def check_read(self, topic: Topic, ask: Ask) -> Page:
        body: dict[str, object] = {
            "from_seq": ask.from_seq,
            "limit": ask.limit,
            "max_batch_bytes": ask.budget_bytes,
            "include_tags": ask.include_tags,
            "include_meta": ask.include_meta,
        }
        given = {"match": ask.match, "epoch": ask.epoch, "node": list(ask.nodes) or None}
        body |= {name: value for name, value in given.items() if value is not None}
        answer = self.ask("POST", f"/v0/topics/{topic.name}/diff", body)
        assert answer.status == 200, answer
        page = _page_of(answer)
        _same(page.fields["head_seq"], topic.head_seq, f"the head of {topic.name}")
        check_page(topic, ask, page)
        return page

    def delete(self, name: str, *, erase: bool = False) -> None:
        rng, topic = self.rng, self.topic(name)
        match = rng.choice((None, *MATCHES))
        before = rng.randint(0, topic.head_seq + 2)
        bound = before if match is None or rng.random() < 0.6 else None
        body: dict[str, object] = {} if bound is None else {"before_seq": bound}
        if match is not None:
            body["match"] = match
        if erase or rng.random() < 0.2:
            body["erase"] = True

        def delete(model: Model) -> dict[str, Any]:
            return model.delete(name, bound, match)

        self._check_rest(topic, self.call(f"/v0/topics/{name}/delete", body, delete))

    def purge(self, name: str) -> None:
        rng, topic = self.rng, self.topic(name)
        subject, pattern = rng.choice(SUBJECTS)
        seq, keep = rng.choice(
            ((None, None), (rng.randint(1, topic.head_seq + 2), None), (None, 30))
        )
        given = {"filter": subject, "seq": seq, "keep": keep}
        body = {name: value for name, value in given.items() if value is not None}

        def purge(model: Model) -> dict[str, Any]:
            return model.purge(name, seq, keep, pattern)

        self._check_rest(topic, self.call(f"/v0/topics/{name}/purge", body, purge))

    def _check_rest(self, topic: Topic, told: Any) -> None:
        shown = {"count": len(topic.records), "earliest_seq": topic.earliest(topic.head_seq)}
        _same({key: told[key] for key in shown}, shown, told)

    def state(self, name: str) -> None:
        topic = self.topic(name)
        told = self._ok("GET", f"/v0/topics/{name}?touch=false")
        _same((told["count"], told["bytes"]), (len(topic.records), topic.size_bytes), told)
        head = topic.head_seq
        _same((told["head_seq"], told["earliest_seq"]), (head, topic.earliest(head)), told)
        rows = self._ok("GET", f"/v0/topics?prefix={name}")["topics"]
        [row] = [row for row in rows if row["topic"] == name]
        _same(row["count"], len(topic.records), row)

    def page_of_cache(self, name: str) -> None:
        """A page and its tag: 304 says that the page is the same, byte for byte, and of the same instance. (§3.4)"""
        topic = self.topic(name)
        limit = self.rng.choice((5, 50))
        target = f"/v0/topics/{name}/records?from_seq={self.rng.choice((0, 10, 40))}&limit={limit}"
        whole = self.ask("GET", target)
        assert whole.status == 200, whole
        live = set(topic.records)
        wrong = [r["$seq"] for r in whole.json["records"] if r["$seq"] not in live]
        assert not wrong, f"{wrong} are gone: {whole}"
        tag, text, epoch = self.etags.get(target, ("", b"", ""))
        if tag:
            again = self.ask("GET", target, if_none_match=tag)
            is_same = whole.body == text and topic.epoch == epoch
            _same(again.status == 304, is_same, (target, text[:200], whole.body[:200]))
        self.etags[target] = whole.headers["etag"], whole.body, topic.epoch

    # ---------------------------------------------------------------------- jobs

    def claim(self) -> None:
        """Jobs that nobody holds, and no job idle while there was one to give. (§10.2)"""
        most, lease_ms = self.rng.choice((1, 5, 50)), self.rng.choice((200, 60_000))
        self.bury()
        before_ms = _now_ms()
        body = {"node": WORKER, "max": most, "lease_ms": lease_ms}
        told = self._ok("POST", f"/v0/topics/{QUEUE}/claim", body)
        self.bury()
        topic, after_ms = self.model.topics[QUEUE], _now_ms()
        for job in told["claimed"]:
            seq, held = job["$seq"], self.held.get(job["$seq"])
            assert seq in topic.records, f"{seq} is no job any more: {job}"
            _same(job["data"], json.loads(topic.records[seq].entry.data), job)
            assert held is None or held.until_ms <= after_ms, f"{seq} is held: {held} {job}"
            self.held[seq] = Lease(job["lease_id"], job["deadline"], job["deliveries"])
        if told["count"] < most:
            given = {job["$seq"] for job in told["claimed"]}
            idle = [
                seq
                for seq in topic.records
                if seq not in given
                and ((held := self.held.get(seq)) is None or held.until_ms < before_ms - 50)
                and not self._is_exhausted(seq)
            ]
            assert not idle, f"{idle[:5]} were not given: {told}"

    def _is_exhausted(self, seq: int) -> bool:
        held, most = self.held.get(seq), self.model.topics[QUEUE].config.max_deliveries
        return bool(most) and held is not None and held.deliveries >= most

    def finish_jobs(self) -> None:
        """Ack, give back or keep what is held; what another lease has is skipped. (§10.4, §10.5)"""
        self.bury()
        topic, now_ms = self.model.topics[QUEUE], _now_ms()
        mine = [seq for seq, held in self.held.items() if seq in topic.records]
        seqs = sorted(self.rng.sample(mine, min(len(mine), self.rng.choice((1, 3, 20)))))
        if not seqs:
            return
        verb, past = self.rng.choice((("ack", "acked"), ("nack", "nacked"), ("extend", "extended")))
        body: dict[str, object] = {"node": WORKER, "seqs": seqs}
        body["lease_ids"] = [self.held[seq].lease for seq in seqs]
        delay_ms = self.rng.choice((0, 200))
        body |= {"nack": {"delay_ms": delay_ms}, "extend": {"lease_ms": 60_000}}.get(verb, {})
        told = self._ok("POST", f"/v0/topics/{QUEUE}/{verb}", body)
        done = [seq for seq in seqs if seq not in told["skipped"]]
        _same(told[past], len(done), told)
        sure = {s for s in told["skipped"] if not self.held[s].is_delayed}
        sure = {seq for seq in sure if self.held[seq].until_ms > _now_ms() + 50}
        assert not sure, f"{sure} are held, and were skipped: {told}"
        for seq in done:
            if verb == "ack":
                self.model._remove(topic, [seq])
                del self.held[seq]
            elif verb == "nack":
                held, until_ms = self.held[seq], now_ms + delay_ms
                late_ms = _now_ms() + delay_ms if delay_ms else until_ms
                self.held[seq] = dataclasses.replace(held, until_ms=late_ms, is_delayed=True)
            else:
                deadline = told["deadlines"][str(seq)]
                self.held[seq] = dataclasses.replace(self.held[seq], until_ms=deadline)

    def bury(self) -> None:
        """What is in the dead-letter topic was in the queue, is there no more, and came once. (§10.6)"""
        topic = self.model.topics[QUEUE]
        places = {json.loads(r.entry.data)[0]: seq for seq, r in topic.records.items()}
        from_seq = len(self.dead)
        page = self._ok("POST", f"/v0/topics/{DEAD}/diff", {"from_seq": from_seq, "limit": 1000})
        for record in page["records"]:
            number = record["data"][0]
            assert number not in self.dead, f"{number} died twice: {record}"
            assert number in places, f"{number} was no job: {record}"
            self.dead.add(number)
            self.model._remove(topic, [places[number]])
            self.held.pop(places[number], None)

    # ---------------------------------------------------------------------- routers

    def route(self) -> None:
        """A router begins, where there is none; else what it has copied is looked at. (§6)"""
        if self.routed_from is None:
            topic = self.topic(SOURCE)
            body = {"source": SOURCE, "dest": COPIES}
            assert self.ask("PUT", f"/v0/routers/{ROUTER}", body).status in (200, 201)
            self.routed_from = topic.head_seq
        self.check_copies()

    def check_copies(self) -> None:
        """In the source's order, once each, nothing else, and all that was not deleted before.  A read
        waits for copies but where their router is blocked, which ends by itself."""
        end = time.monotonic() + DEADLINE_S
        while missing := self._uncopied():
            assert time.monotonic() < end, f"not copied: {missing[:9]}"
            time.sleep(0.05)

    def _uncopied(self) -> list[int]:
        body = {"from_seq": len(self.copied), "limit": 1000}
        while True:
            page = self._ok("POST", f"/v0/topics/{COPIES}/diff", body)
            assert page["tombstone"] is None, page
            self.copied += [record["data"][0] for record in page["records"]]
            body["from_seq"] = page["next_from_seq"]
            if page["caught_up"]:
                break
        ascending = sorted(set(self.copied))
        assert self.copied == ascending, f"out of order, or twice: {self.copied[-99:]}"
        if self.routed_from is None:
            return []
        source, copied = self.model.topics[SOURCE], set(self.copied)
        left = [record for record in source.records.values() if record.seq > self.routed_from]
        return [n for record in left if (n := json.loads(record.entry.data)[0]) not in copied]

    # ---------------------------------------------------------------------- watchers

    def watch(self) -> None:
        """A watcher reads to the end of its topics, over whatever it has been through; it may be cut
        off then, or go on later. (§7)"""
        rng = self.rng
        if len(self.watchers) < 3:
            names = tuple(sorted(rng.sample(LOGS, rng.choice((1, 2)))))
            begun = {name: self.topic(name).head_seq for name in names}
            truth = Truth(dict(begun))
            self.watchers.append(Watcher(names, rng.choice((Sse1, Sse2)), truth, begun))
        self._pull(rng.choice(self.watchers))

    def _pull(self, watcher: Watcher) -> None:
        for name in watcher.names:
            self.append(name, 1)  # so that the last record is there, and ends the walk
        self.trail.append(f"pull {watcher.names} {watcher.truth.positions}")
        goals = {name: self.model.topics[name].head_seq for name in watcher.names}
        cuts = int(watcher.stream is None)
        while any(watcher.truth.positions[name] < goal for name, goal in goals.items()):
            if watcher.stream is None:
                self._open(watcher)
            for each in read_news(watcher.stream)[1]:
                if each.kind == "error" and each.fields["code"] == 409 and cuts > 1:
                    # With readers, a stream that was cut before its request was read may come last.
                    break
                assert each.kind not in ("error", "deleted"), each
                watcher.truth.believe(each)
            else:
                if self.rng.random() >= 0.1:
                    continue
            cuts += 1
            cut(watcher.stream)
            watcher.stream = None
        for name in watcher.names:
            topic = self.topic(name)
            seen = dict(watcher.truth.records.get(name, ()))
            wrong = [s for s, data in seen.items() if self.known[topic.epoch].get(s, data) != data]
            assert not wrong, f"other data: {name} {wrong}"
            begun = watcher.begun[name]
            missed = [seq for seq in topic.records if seq > begun and seq not in seen]
            assert not missed, f"never sent: {name} {missed[:9]} {watcher}"
        if self.rng.random() < 0.5 and watcher.stream is not None:
            cut(watcher.stream)
            watcher.stream = None
        if self.rng.random() < 0.1:
            self._leave(watcher)

    def _open(self, watcher: Watcher) -> None:
        if watcher.wid is None:
            positions = watcher.truth.positions
            topics = {name: {"from_seq": positions[name]} for name in watcher.names}
            posted = self._ok("POST", "/v0/watch", {"topics": topics})
            watcher.wid, watcher.truth.last_id = posted["wid"], posted["cursor"]
        watcher.stream = watcher.kind(self.server.port, watcher.wid, watcher.truth.last_id)

    def _leave(self, watcher: Watcher) -> None:
        if watcher.stream is not None:
            watcher.stream.socket.close()
        self.watchers.remove(watcher)

    def _close_streams(self) -> None:
        for watcher in self.watchers:
            if watcher.stream is not None:
                watcher.stream.socket.close()
            watcher.stream = watcher.wid = None

    # ---------------------------------------------------------------------- everything

    def verify(self) -> None:
        """Every topic, whole, is what the model has."""
        for name in LOGS:
            self.whole(self.topic(name))
            self.state(name)
        self.check_queue()
        self.check_copies()

    def check_queue(self) -> None:
        for again in range(5):
            self.bury()  # a job may die at any moment, and then it is there
            try:
                self.whole(self.model.topics[QUEUE])
                return
            except AssertionError:
                if again == 4:
                    raise

    def whole(self, topic: Topic) -> None:
        ask = Ask(limit=1000, budget_bytes=8 << 20, include_tags=True)
        while True:
            page = self.check_read(topic, ask)
            ask = dataclasses.replace(ask, from_seq=page.next_seq)
            if page.fields["caught_up"]:
                return

    # ---------------------------------------------------------------------- ends

    def stop(self) -> None:
        self.trail.append("stop")
        self.stops += 1
        self._close_streams()
        assert self.server.stop() == 0
        self._begin_again(is_clean=True)

    def kill(self) -> None:
        """In the middle of a request, mostly."""
        self.kills += 1
        rng = self.rng
        doubtful = self._cut_off() if rng.random() < 0.8 else None
        self.trail.append("kill")
        self.server.kill()
        self._close_streams()
        if rng.random() < 0.2:
            self.server.start(ready=False)
            time.sleep(rng.random() * 0.3)
            self.server.kill()
        self._begin_again(is_clean=False, doubtful=doubtful)

    def _cut_off(self) -> Callable[[Model], dict[str, Any]]:
        """Send a write whose answer nobody gets; what it does, if it does."""
        rng, name = self.rng, self.rng.choice((*LOGS, QUEUE))
        topic = self.topic(name)
        if rng.random() < 0.6 or name == QUEUE:
            entries = self.entries(rng.choice((1, 5, 100)))
            key = f"k{rng.randrange(20)}" if rng.random() < 0.5 else None
            target, body = f"/v0/topics/{name}", _batch(entries, key)

            def act(model: Model) -> dict[str, Any]:
                return model.append(name, entries, key, TopicConfig())
        else:
            match, before = rng.choice(MATCHES), rng.randint(0, topic.head_seq + 2)
            target, body = f"/v0/topics/{name}/delete", {"match": match, "before_seq": before}

            def act(model: Model) -> dict[str, Any]:
                return model.delete(name, before, match)

        self.trail.append(f"cut off: {target} {json.dumps(body)[:200]}")
        act.topic = name  # type: ignore[attr-defined]
        act.sent_ms = _now_ms()  # type: ignore[attr-defined]
        self._send("POST", target, body)
        time.sleep(rng.choice((0, 0.001, 0.003, 0.01)))
        return act

    def _begin_again(
        self, *, is_clean: bool, doubtful: Callable[[Model], dict[str, Any]] | None = None
    ) -> None:
        self.server.start()
        self._connect()
        self.etags = self.etags if is_clean else {}
        queue = self.model.topics[QUEUE].config
        if not is_clean and not queue.leases_durable:
            self.held = {
                seq: dataclasses.replace(held, until_ms=0, is_delayed=True)
                for seq, held in self.held.items()
            }
        if doubtful is not None:
            self._in_time(partial(self._settle, doubtful))
        for name in LOGS:
            self._in_time(partial(self._learn_loss, name))
        self._in_time(self.verify)
        if self.rng.random() < 0.4:
            # What a start forgets, an erasure may want: it is answered all the same.
            self.delete(self.rng.choice(LOGS), erase=True)

    def _settle(self, doubtful: Callable[[Model], dict[str, Any]]) -> None:
        """Whether the write that was cut off was done: all of it, or nothing."""
        name = doubtful.topic  # type: ignore[attr-defined]
        topic = self.topic(name)
        if topic.is_volatile:
            return
        trial = Model({name: topic.copy()}, self.model.now_ms)
        try:
            doubtful(trial)
        except Refused:
            return
        done = trial.topics[name]
        told = self._ok("GET", f"/v0/topics/{name}?touch=false")
        if name == QUEUE:
            self.bury()
        is_done = told["head_seq"] == done.head_seq
        if done.head_seq == topic.head_seq:
            is_done = told["count"] == len(done.records)
        if is_done:
            first = topic.head_seq + 1
            self.model.topics[name] = done
            if done.head_seq >= first:
                sent_ms = doubtful.sent_ms  # type: ignore[attr-defined]
                self.learn(done, first, done.head_seq, sent_ms)

    def _learn_loss(self, name: str) -> None:
        """What lived in memory only is gone, and said to be; no seq is given twice. (§0.10)"""
        topic = self.topic(name)
        if not topic.is_volatile:
            return
        told = self._ok("GET", f"/v0/topics/{topic.name}?touch=false")
        _same(told["count"], 0, told)
        assert told["head_seq"] >= topic.head_seq, f"{topic.head_seq} was given: {told}"
        had = list(topic.records)
        topic.lose(had)
        topic.head_seq, topic.keys = told["head_seq"], {}
        low, high = topic.evict_floor, topic.head_seq + 1
        while low < high:  # the greatest floor of which a cursor is told
            middle = (low + high + 1) // 2
            body = {"from_seq": middle - 2, "limit": 1}
            page = self._ok("POST", f"/v0/topics/{topic.name}/diff", body)
            low, high = (middle, high) if page["tombstone"] else (low, middle - 1)
        topic.evict_floor = low


def topic_time(topic: Topic, before_seq: int) -> int:
    """The time of the last record before a seq."""
    return max((r.ts_ms for seq, r in topic.records.items() if seq < before_seq), default=0)


def _batch(entries: list[Entry], key: str | None) -> dict[str, object]:
    records = []
    for entry in entries:
        record: dict[str, object] = {"data": json.loads(entry.data)}
        given = {"tag": entry.tag, "node": entry.node}
        record |= {name: value for name, value in given.items() if value is not None}
        if entry.meta is not None:
            record["meta"] = json.loads(entry.meta)
        records.append(record)
    body: dict[str, object] = {"records": records}
    if key is not None:
        body["idempotency_key"] = key
    return body


def _page_of(answer: Answer) -> Page:
    body = answer.body
    lo = body.index(b'"records":[') + len(b'"records":[')
    return Page(answer.json, body[lo : body.rindex(b'],"next_from_seq"')])


def _same(found: object, expected: object, what: object) -> None:
    assert found == expected, f"{found} where {expected} was expected: {what}"


def _now_ms() -> int:
    return int(time.time() * 1000)
