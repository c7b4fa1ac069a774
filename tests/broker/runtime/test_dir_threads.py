"""The threads of the log dirs: each runs its calls in order. A hanging thread is reported and does
not block others, and a call runs to its end even if its caller no longer waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.broker.runtime import dir_threads
from kstore.broker.runtime.dir_threads import DirThreads
from tests.beside.waiting import reached


def run(work: Callable[[DirThreads, list[str]], object]) -> list[str]:
    """Run some work with threads and return the reports to the operator."""
    told: list[str] = []

    async def all_of_it() -> None:
        threads = DirThreads(asyncio.get_running_loop(), told.append)
        try:
            await asyncio.wait_for(asyncio.ensure_future(work(threads, told)), 30)  # type: ignore[call-overload]
        finally:
            threads.close()

    asyncio.run(all_of_it())
    return told


def test_the_calls_of_a_log_dir_run_in_order_and_not_on_the_loop() -> None:
    order: list[tuple[int, bool]] = []

    async def work(threads: DirThreads, told: list[str]) -> None:
        mine = threading.get_ident()
        calls = [
            threads.run("/a", "call", lambda n=n: order.append((n, threading.get_ident() == mine)))
            for n in range(20)
        ]
        await asyncio.gather(*calls)

    assert run(work) == []
    assert order == [(n, False) for n in range(20)]


def test_a_log_dir_that_hangs_is_told_and_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dir_threads, "HANGS_AFTER_S", 0.01)
    go_on = threading.Event()

    async def work(threads: DirThreads, told: list[str]) -> None:
        hanging = threads.run("/a", "opening t-0", go_on.wait)
        behind = threads.run("/a", "opening t-1", lambda: 1)
        await reached(lambda: told)
        assert threads.hangs("/a")
        assert not threads.hangs("/b")
        assert await threads.run("/b", "opening t-2", lambda: 2) == 2
        assert not behind.done()
        go_on.set()
        assert await hanging
        assert await behind == 1
        assert not threads.hangs("/a")

    told = run(work)
    assert "the log dir /a hangs: opening t-0" in told[0]
    assert "the log dir /a answers again: opening t-0" in told[1]
    assert len(told) == 2


def test_a_call_ends_though_who_waited_for_it_is_gone(tmp_path: Path) -> None:
    go_on = threading.Event()

    async def work(threads: DirThreads, told: list[str]) -> None:
        def call() -> None:
            go_on.wait()
            (tmp_path / "done").touch()

        waiting = threads.run("/a", "waiting", call)
        waiting.cancel()
        go_on.set()
        await threads.run("/a", "what comes behind it", lambda: None)
        assert (tmp_path / "done").exists()

    assert run(work) == []


def test_what_a_call_raises_is_told_with_its_log_dir() -> None:
    problems: list[tuple[str, Exception]] = []

    async def work(threads: DirThreads, told: list[str]) -> None:
        threads.on_error = lambda path, problem: problems.append((path, problem))
        with pytest.raises(ZeroDivisionError):
            await threads.run("/a", "dividing", lambda: 1 // 0)

    assert run(work) == []
    [(path, problem)] = problems
    assert path == "/a"
    assert isinstance(problem, ZeroDivisionError)
