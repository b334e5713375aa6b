"""docs/exactly-once.md: its consumers and its relay crash at every statement, and nothing happens twice or not at all.

A crash is an exception that no handler of the page sees, after which the connection is closed without a commit: what
SQLite and Postgres find after a `kill -9`.
"""

import os
import pwd
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from topics import Client
from topics.testing import MemoryTopics

from .pages import find

SALES = [{"shop": "berlin", "total": 30}, {"shop": "paris", "total": 12}] * 3


class Crash(BaseException):
    """The process ends here."""


class Crashing:
    """A connection, or a client, whose process ends at one of its calls.

    Args:
        calls: That are still made; the next one raises, and each after it.
        after: Whether the call that raises is carried out first.
    """

    def __init__(self, inner: Any, calls: int, *, after: bool) -> None:
        self._inner, self._left, self._after = inner, calls, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                if self._after:
                    call(*args, **options)
                raise Crash
            return call(*args, **options)

        return counted

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._inner.__exit__(*error)


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryTopics() as topics:
        yield topics.client


def names_of(begins: str) -> dict[str, Any]:
    """What a block of the page defines."""
    code = find("exactly-once.md", begins).code
    defined, _, _ = code.partition("\noutbox = ")
    names: dict[str, Any] = {"sqlite3": sqlite3}
    exec(compile(defined, "docs/exactly-once.md", "exec"), names)
    return names


CRASHES = [(calls, after) for calls in range(12) for after in (False, True)]
"""Before and after each of the first calls, and none."""


@pytest.mark.parametrize(("calls", "after"), CRASHES)
def test_sqlite_counts_each_record_once(
    client: Client, tmp_path: Path, calls: int, after: bool
) -> None:
    page = names_of("import sqlite3")
    client.append("sales", *SALES)
    path = tmp_path / "totals.db"
    with closing(page["open_totals"](path)) as db, suppress(Crash):
        page["consume_page"](client, Crashing(db, calls, after=after), "sales")
    with closing(page["open_totals"](path)) as db:
        while page["consume_page"](client, db, "sales"):
            pass
        totals = dict(db.execute("select * from totals").fetchall())

    assert totals == {"berlin": 90, "paris": 36}


def test_a_topic_that_was_made_anew_is_read_from_its_start(client: Client, tmp_path: Path) -> None:
    """And the loss is written down. (§3.3)"""
    page = names_of("import sqlite3")
    client.append("sales", *SALES)
    with closing(page["open_totals"](tmp_path / "totals.db")) as db:
        page["consume_page"](client, db, "sales")
        client.delete_topic("sales")
        client.append("sales", *SALES, {"shop": "berlin", "total": 1})
        page["consume_page"](client, db, "sales")

        assert dict(db.execute("select * from totals").fetchall())["berlin"] == 181
        assert [reason for *_, reason in db.execute("select * from losses")] == ["recreated"]


@pytest.mark.parametrize("broken", ["db", "client"])
@pytest.mark.parametrize(("calls", "after"), CRASHES)
def test_the_relay_sends_each_row_once(
    client: Client, tmp_path: Path, broken: str, calls: int, after: bool
) -> None:
    """Whichever of the two it spoke to last, and with rows that came since. (§0.8)"""
    page = names_of("import json")
    path = tmp_path / "shop.db"
    insert = "insert into outbox (data) values (?)"
    with closing(page["open_outbox"](path)) as db:
        with db:
            db.executemany(insert, [(f"{n}",) for n in range(5)])
        ends: dict[str, Any] = {"client": client, "db": db}
        ends[broken] = Crashing(ends[broken], calls if broken == "db" else 0, after=after)
        with suppress(Crash):
            page["relay_batch"](ends["client"], ends["db"], "orders-placed", 3)
    with closing(page["open_outbox"](path)) as db:
        with db:
            db.executemany(insert, [(f"{n}",) for n in range(5, 8)])
        while page["relay_batch"](client, db, "orders-placed", 3):
            pass

        assert [record.data for record in client.read("orders-placed")] == list(range(8))
        assert db.execute("select count(*) from outbox").fetchone() == (0,)


# ---------------------------------------------------------------------- Postgres


def programs() -> Path | None:
    """Of Postgres, where it is installed."""
    found = shutil.which("pg_ctl") or next(
        iter(sorted(glob("/usr/lib/postgresql/*/bin/pg_ctl"))), None
    )
    return None if found is None else Path(found).parent


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of Postgres, which runs as another user where this one is root."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = programs()
    if found is None:
        pytest.skip("Postgres is not installed")
    who: dict[str, Any] = {}
    folder = Path(f"/tmp/topics-postgres-{os.getpid()}")
    folder.mkdir()
    if os.getuid() == 0:
        who = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid}
        shutil.chown(folder, **who)
    data = str(folder / "data")

    def run(program: str, *words: str) -> None:
        command = [str(found / program), *words]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, **who
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run("initdb", "-D", data, "-U", "shop", "--auth", "trust", "--no-sync")
        # Its socket is a file in its own folder, so that no other program has its port.
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start")
        try:
            yield f"host={folder} user=shop dbname=postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("calls", "after"), [(n, after) for n in range(9) for after in (False, True)]
)
def test_postgres_counts_each_record_once(
    client: Client, postgres: str, calls: int, after: bool
) -> None:
    import psycopg

    page = names_of("import psycopg")
    client.append("sales", *SALES)
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("drop table if exists cursors, totals")
        page["prepare"](db)
    with closing(psycopg.connect(postgres, autocommit=True)) as db, suppress(Crash):
        page["consume_page"](client, Crashing(db, calls, after=after), "sales")
    with psycopg.connect(postgres, autocommit=True) as db:
        while page["consume_page"](client, db, "sales"):
            pass
        totals = dict(db.execute("select * from totals").fetchall())

    assert totals == {"berlin": 90, "paris": 36}
