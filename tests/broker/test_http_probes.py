"""Probes: without a token, and while the event loop is stuck."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore._fast.network.loop_watch import LoopWatch
from kstore._fast.network.watched_loop import WatchedLoop
from kstore.broker.http_probes import Probes, StallResponder
from kstore.broker.http_server import Answer, Request, serve_http
from kstore.broker.runtime.loop_holds import LoopHolds
from kstore.config import BrokerConfig
from tests.broker import test_http_api as http_api
from tests.conformance.kstore_broker import KstoreBroker


def test_probes_need_no_token_and_tell_no_more_than_a_status(tmp_path: Path) -> None:
    settings = {"kstore.http.listener": "http://0.0.0.0:0", "kstore.http.token": http_api.TOKEN}
    with KstoreBroker(tmp_path, overrides=settings) as broker:
        port = broker.error_output().rpartition("the HTTP API is at ")[2].split()[0].split(":")[-1]
        url = f"http://127.0.0.1:{port}"
        pod = {"Host": "10.1.2.3:9464"}
        assert ask(f"{url}/livez", headers=pod) == (200, {"status": "alive"})
        assert ask(f"{url}/readyz", headers=pod) == (200, {"status": "ready"})
        assert ask(f"{url}/healthz", headers=pod) == (200, {"status": "ready"})
        assert ask(f"{url}/livez", "POST")[0] == 405
        for path in ("health", "metrics", "livez/x", "healthz/"):
            assert ask(f"{url}/{path}")[0] == 401


@pytest.mark.parametrize(
    ("joined", "stopping", "status"),
    [(False, False, "starting"), (True, False, "ready"), (True, True, "stopping")],
)
def test_only_a_broker_that_answers_clients_is_ready(
    joined: bool, stopping: bool, status: str
) -> None:
    broker: Any = SimpleNamespace(membership=SimpleNamespace(joined=joined))
    probes = Probes(SimpleNamespace(stopping=stopping, broker=broker))
    for path in ("/readyz", "/healthz"):
        answer = probes.answer(Request("GET", path, {}, b""))
        assert answer is not None
        assert (answer.status == 200) is (status == "ready")
        assert json.loads(answer.body) == {"status": status}  # type: ignore[arg-type]
    alive = probes.answer(Request("GET", "/livez", {}, b""))
    assert alive is not None
    assert alive.status == 200
    assert probes.answer(Request("GET", "/metrics", {}, b"")) is None


def ask(url: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, Any]:
    status, body, _ = http_api.ask(url, method, headers=headers or {})
    return status, body


@pytest.fixture
def stuck() -> Iterator[tuple[str, Callable[[], None], threading.Event]]:
    """An HTTP listener on a separate loop: its URL, a call that blocks it, one that ends that."""
    watch, release, started = LoopWatch(), threading.Event(), threading.Event()
    held = threading.Event()
    url: list[str] = []
    stop: list[Callable[[], object]] = []

    def hold() -> None:
        held.set()
        release.wait()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        node: Any = SimpleNamespace(
            config=BrokerConfig.load(None, environ={}, overrides={}), node_id=1,
            report=lambda *words: None,
        )  # fmt: skip
        holds = LoopHolds(node, watch)
        probes = Probes(SimpleNamespace(
            stopping=False, broker=SimpleNamespace(membership=SimpleNamespace(joined=True))
        ))  # fmt: skip

        async def answer(request: Request) -> Answer:
            return probes.answer(request) or Answer(404, b"{}")

        server, base = await serve_http("kstore.http.listener", "http://127.0.0.1:0", answer)
        answers = StallResponder(holds, server)
        holds.start()
        over = asyncio.Event()
        url.append(base)
        stop.append(lambda: loop.call_soon_threadsafe(over.set))
        stop.append(lambda: loop.call_soon_threadsafe(hold))
        started.set()
        await over.wait()
        answers.close()
        holds.close()
        server.close()

    def run() -> None:
        watch.attach()
        loop = WatchedLoop(watch)
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)

    def hold_it() -> None:
        stop[1]()
        assert held.wait(60)

    yield url[0], hold_it, release
    release.set()
    stop[0]()
    thread.join()


def test_a_loop_that_is_stuck_is_told_and_one_that_goes_on_too(
    stuck: tuple[str, Callable[[], None], threading.Event],
) -> None:
    url, hold, release = stuck
    assert ask(f"{url}/livez") == (200, {"status": "alive"})
    hold()
    status, body = ask(f"{url}/livez")
    assert (status, body["status"]) == (503, "stuck")
    assert ask(f"{url}/metrics")[0] == 503
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as garbage:
        garbage.sendall(b"\0\r\n\r\n")
        assert garbage.recv(100) == b""
    release.set()
    while ask(f"{url}/livez")[0] != 200:
        time.sleep(0.05)
