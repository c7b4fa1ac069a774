"""The loop in a thread under the synchronous clients: Ctrl-C, callbacks, forks, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest

from kstore.clients.io.loop_thread import LoopThread

LIMIT_S = 60


def test_results_and_errors_come_back() -> None:
    async def divide(a: int, b: int) -> float:
        await asyncio.sleep(0)
        return a / b

    thread = LoopThread()
    assert thread.run(divide(6, 3)) == 2
    with pytest.raises(ZeroDivisionError):
        thread.run(divide(1, 0))
    called = threading.Event()
    thread.call(called.set)
    assert called.wait(LIMIT_S)
    thread.close()


def test_a_result_that_comes_when_a_wait_gives_up_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = asyncio.run_coroutine_threadsafe

    class Late:
        """The result is there just after a wait for it has given up."""

        def __init__(self, *what: Any) -> None:
            self.future = begin(*what)
            self.done = self.future.done

        def result(self, timeout_s: float | None = None) -> Any:
            found = self.future.result()
            if timeout_s is None:
                return found
            raise TimeoutError

        def cancel(self) -> None:
            self.future.cancel()

    thread = LoopThread()
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", Late)
    assert thread.run(asyncio.sleep(0, "result")) == "result"
    thread.close()


def test_ctrl_c_cancels_what_runs_and_is_raised() -> None:
    cancelled = threading.Event()
    running = threading.Event()

    async def for_ever() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt() -> None:
        running.wait(LIMIT_S)
        time.sleep(0.01)  # so that it most likely waits already; it works either way
        os.kill(os.getpid(), signal.SIGINT)

    thread = LoopThread()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        thread.run(for_ever())
    assert cancelled.wait(LIMIT_S)
    thread.close()


def test_a_callback_on_the_loop_is_told_that_it_can_not_wait() -> None:
    thread = LoopThread()

    async def waits_for_itself() -> None:
        thread.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="can't wait for itself"):
        thread.run(waits_for_itself())
    thread.close()


def test_close_ends_what_runs_and_the_thread() -> None:
    ended = threading.Event()
    running = threading.Event()

    async def for_ever() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    thread = LoopThread()

    def wait() -> None:
        with contextlib.suppress(CancelledError):
            thread.run(for_ever())

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert running.wait(LIMIT_S)
    thread.close()
    waiting.join(LIMIT_S)
    assert not waiting.is_alive()
    assert ended.is_set()
    assert not [t for t in threading.enumerate() if t.name == thread._thread.name]


def test_a_forgotten_one_is_ended() -> None:
    name = LoopThread()._thread.name
    gc.collect()
    deadline = time.monotonic() + LIMIT_S
    while any(t.name == name for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not any(t.name == name for t in threading.enumerate())


def python(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process, which must end without help."""
    begin = "import asyncio, os, sys\nfrom kstore.clients.io.loop_thread import LoopThread\n"
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", begin + script],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "script",
    [
        "thread = LoopThread()",
        "thread = LoopThread(); thread.run(asyncio.sleep(0))",
        "thread = LoopThread(); asyncio.run_coroutine_threadsafe(asyncio.sleep(99), thread.loop)",
        "thread = LoopThread(); thread.again = thread",
        "thread = LoopThread(); thread.close(); thread.close()",
    ],
)
def test_python_ends_though_nobody_closed_it(script: str) -> None:
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_after_a_fork_the_child_is_told_to_make_its_own() -> None:
    done = python(
        """
thread = LoopThread()
thread.run(asyncio.sleep(0))
if os.fork() == 0:
    try:
        thread.run(asyncio.sleep(0))
    except RuntimeError as error:
        print(error)
    own = LoopThread()
    print(own.run(asyncio.sleep(0, "own")))
    sys.exit()
os.wait()
print(thread.run(asyncio.sleep(0, "parent")))
"""
    )
    assert done.returncode == 0, done.stderr
    told, own, parent = done.stdout.splitlines()
    assert "create a client in each process" in told
    assert (own, parent) == ("own", "parent")
