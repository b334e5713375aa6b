"""docs/web.md: its applications serve what the page says, beside a real server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from topics import Client

from .place import Place
from .programs import served, tools, write_files

SETTINGS = """
SECRET_KEY = "x"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
"""
URLS = """
from django.urls import path
from shop.views import place
urlpatterns = [path("orders", place)]
"""
MODELS = """
from django.db import models

class Order(models.Model):
    shop = models.TextField()
    total = models.IntegerField()
    is_shipped = models.BooleanField(default=False)
"""
ASGI = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.asgi import get_asgi_application
app = get_asgi_application()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path, tools()) as place:
        write_files("web.md", place)
        yield place


def order(url: str, total: int, **headers: str) -> int:
    sent = {"shop": "berlin", "total": total}
    answer = httpx.post(f"{url}/orders", json=sent, headers=headers)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["seq"])


def events(url: str, number: int, **headers: str) -> list[tuple[int, int]]:
    """The id and the total of so many events, from a stream that is closed then."""
    found: list[tuple[int, int]] = []
    with httpx.stream("GET", f"{url}/orders/events", headers=headers, timeout=60) as stream:
        at = 0
        for line in stream.iter_lines():
            if line.startswith("id: "):
                at = int(line[4:])
            elif line.startswith("data: "):
                found.append((at, json.loads(line[6:])["total"]))
            if len(found) == number:
                return found
    raise AssertionError(found)


def test_fastapi_appends_and_streams(place: Place) -> None:
    """A stream goes on after the id that it is given, also over a restart of the server. (§7.4)"""
    with served("shop_api:app", place) as url:
        assert [order(url, total) for total in (30, 12)] == [1, 2]
        assert [order(url, 5, **{"Idempotency-Key": "a"}) for _ in range(2)] == [3, 3]
        assert events(url, 3) == [(1, 30), (2, 12), (3, 5)]

        place.shell("systemctl restart topics")
        assert order(url, 7) == 4
        assert events(url, 2, **{"Last-Event-ID": "2"}) == [(3, 5), (4, 7)]


def test_fastapi_refuses_while_the_server_is_away(place: Place) -> None:
    with served("shop_api:app", place) as url:
        os.kill(int((place.folder / ".place/pid").read_text()), 9)
        with httpx.Client(timeout=60) as browser:
            answer = browser.post(f"{url}/orders", json={"shop": "berlin", "total": 1})

        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        place.shell("systemctl start topics")


def test_fastapi_hands_work_to_a_queue(place: Place) -> None:
    """The same report is ordered once, and its result waited for. (§10.9)"""
    with (
        served("reports_api:app", place) as url,
        Client(place.environment["TOPICS_URL"]) as worker,
    ):
        asked = [httpx.post(f"{url}/reports", params={"year": 2026}) for _ in range(2)]
        assert [answer.json() for answer in asked] == [{"job": 1}] * 2
        assert httpx.get(f"{url}/reports/1").json() == {"state": "ready", "result": None}

        claimed = worker.claim("reports", node="w-1")
        worker.ack("reports", claimed.jobs, node="w-1", result={"pages": 12})
        done = httpx.get(f"{url}/reports/1", params={"wait_ms": 10_000}).json()
        assert done == {"state": "done", "result": {"pages": 12}}


def test_django_appends_after_the_commit_and_ships(place: Place) -> None:
    pytest.importorskip("django")
    for name, text in (
        ("settings.py", SETTINGS),
        ("urls.py", URLS),
        ("shop/models.py", MODELS),
        ("application.py", ASGI),
        ("shop/__init__.py", ""),
        ("shop/management/__init__.py", ""),
        ("shop/management/commands/__init__.py", ""),
    ):
        (place.folder / name).write_text(text)
    environment = {**place.environment, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": "."}

    def admin(*words: str) -> str:
        command = ["python", "-m", "django", *words]
        done = subprocess.run(
            command, cwd=place.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    admin("makemigrations", "shop")
    admin("migrate")
    with Client(place.environment["TOPICS_URL"]) as client:
        client.put_topic("web-shipping", type="queue")
        client.put_router("shipping", source="web-orders", dest="web-shipping")
        with served("application:app", place) as url:
            answer = httpx.post(f"{url}/orders", json={"shop": "berlin", "total": 30})
            assert (answer.status_code, answer.json()) == (202, {"order": 1})
            refused = httpx.post(f"{url}/orders", json={"shop": None, "total": 1})
            assert refused.status_code == 500

        sent = [record.data for record in client.read("web-orders")]
        assert sent == [{"order": 1, "shop": "berlin", "total": 30}]
        assert "1 orders were shipped" in admin("ship_orders", "--drain")
        shell = "from shop.models import Order; print('shipped', Order.objects.get().is_shipped)"
        assert "shipped True" in admin("shell", "-c", shell)
