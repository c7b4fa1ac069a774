"""An asyncio event loop with virtual time: it jumps to the next timer when nothing is ready.

Each callback belongs to a `Life`, one run of one simulated process, by the context in which it was
scheduled. Callbacks of a dead life are dropped, those of a frozen one wait. This module does not
know the network.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
import time
from asyncio import events
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

HOLD_S = 1.0
"""A step that takes longer, of the machine's own time, is a finding: a broker's loop is held."""
STEPS_BETWEEN = 256
"""How often it is asked how much of a core was used."""
STEP_S = 1e-6
"""What a callback costs, so that a loop of callbacks that wait for a time comes to an end."""
EPOCH_MS = 1_800_000_000_000
"""The wall clocks' time at the start. In 2027: some numbers begin with the seconds since 2025."""


class Life:
    """One run of a simulated process, from its start to its end."""

    def __init__(self, name: str, loop: SimLoop, seed: int) -> None:
        self.name = name
        self.dead = False
        self.frozen_until = 0.0
        self.clock_skew_ms = 0
        self.disk_delay_s = 0.0
        self.random = Random(f"{seed}/{name}")
        self.loop = loop
        self.context = copy_context()
        self.context.run(LIFE.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self.disk: Any = None
        self.made: list[Any] = []
        """The Broker of the process, once it is made."""
        self.signals: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}

    def now_ms(self) -> int:
        """The wall clock of the process."""
        return EPOCH_MS + int(self.loop.time() * 1000) + self.clock_skew_ms

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function as this process, now."""
        return self.context.copy().run(function, *args)

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """A task of this process."""
        return self.loop.create_task(work, context=self.context.copy())


LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)


class _Handle(events.Handle):
    """asyncio's handle without the parts that a simulation does not need, at half the cost."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _Timer(_Handle):
    """The same for a timer."""

    __slots__ = ("_at",)

    def when(self) -> float:
        """The virtual time."""
        return self._at


class _Numbered:
    """A number that the loop assigns at the first hash. A hash by memory address would give it
    another place in a set after other simulations in the same process, and a seed would not repeat.
    """

    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
            return self._number


class _Task(_Numbered, asyncio.Task[Any]):
    """asyncio's task."""


class _Future(_Numbered, asyncio.Future[Any]):
    """asyncio's future."""


def current_life() -> Life | None:
    """The running process; None for the simulation itself."""
    return LIFE.get()


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. ``network`` answers create_server and create_connection."""

    def __init__(self, random: Random) -> None:
        self.network: Any = None
        self.random = random
        self.steps = 0
        self.problems: list[str] = []
        self._now = 0.0
        self._count = 0
        self._numbered = 0
        self._ready: deque[events.Handle] = deque()
        self._timers: list[tuple[float, int, events.Handle]] = []
        self._stopping = False
        self._closed = False
        self._executors: dict[Any, Worker] = {}
        """By the executor itself: of two, the second may get the first one's place in memory."""

    # ---- time and callbacks ----

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """Run it after the callbacks that are ready."""
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """Run it after this number of virtual seconds."""
        when = self._now + delay if delay > 0.0 else self._now
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """Run it at a virtual time."""
        handle = _Timer(callback, args, context)
        handle._at = when
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle  # type: ignore[return-value]

    def _put(self, when: float, handle: events.Handle) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def next_number(self) -> int:
        """The exception handler of tasks and futures."""
        self._numbered += 1
        return self._numbered

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """A task; it belongs to the life of its context."""
        task: asyncio.Task[Any] = _Task(coro, loop=self, name=name, context=context)
        life = (context.get(LIFE) if context is not None else None) or LIFE.get()
        if life is not None:
            # Kept, so that the `finally` clauses of a dead process do not run when it is collected.
            life.tasks.append(task)
            if len(life.tasks) > 512:
                life.tasks = [each for each in life.tasks if not each.done()]
        return task

    def advance(self, seconds: float) -> None:
        """Let time pass within a callback, as a blocking sleep does."""
        self._now += max(seconds, 0.0)

    # ---- running ----

    def run_until_complete(self, future: Any) -> Any:
        """Run until it is done; RuntimeError if nothing is left to run before that."""
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not task.done():
            raise RuntimeError("nothing is left to happen, and the simulation has not ended")
        return task.result()

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing is left."""
        events._set_running_loop(self)
        self._stopping = False
        try:
            self._run()
        finally:
            events._set_running_loop(None)

    def _run(self) -> None:
        """Run one callback after the other. Inlined, because a simulation spends most of its time
        here.
        """
        ready, timers, pop = self._ready, self._timers, heapq.heappop
        clock, used = time.perf_counter, time.thread_time()
        while not self._stopping and (ready or timers):
            if not ready:
                self._now = max(self._now, timers[0][0])
            while timers and timers[0][0] <= self._now:
                handle = pop(timers)[2]
                if not handle._cancelled:
                    ready.append(handle)
            if not ready:
                continue  # only cancelled ones were due
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context = handle._context
            life = context.get(LIFE)
            if life is not None:
                if life.dead:
                    continue
                if life.frozen_until > self._now:
                    self._put(life.frozen_until, handle)
                    continue
            self.steps += 1
            self._now += STEP_S
            if self.steps % STEPS_BETWEEN == 0:
                used = time.thread_time()
            began = clock()
            try:
                context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as problem:  # noqa: BLE001 - a finding
                where = {"message": f"in {handle._callback}", "exception": problem}
                context.run(self.call_exception_handler, where)
            if clock() - began > HOLD_S:
                self._note_hold(handle, time.thread_time() - used)

    def _note_hold(self, handle: events.Handle, used_s: float) -> None:
        """A step took long, by itself or because the machine had no free core."""
        held_by = getattr(handle._callback, "__self__", handle._callback)
        if used_s > HOLD_S and not isinstance(held_by, Worker):
            self.problems.append(f"a loop was held for {used_s:.1f} s by {held_by}")

    def stop(self) -> None:
        """End run_forever after this callback."""
        self._stopping = True

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do."""

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error: an uncaught exception is a finding."""
        problem = context.get("exception")
        life = LIFE.get()
        where = life.name if life is not None else "simulation"
        if life is not None and life.dead:
            return
        self.problems.append(f"{where}: {context.get('message')}: {problem!r}")

    default_exception_handler = call_exception_handler

    # ---- simulated threads ----

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it later in one piece, after earlier calls of the same executor and life."""
        done = self.create_future()
        self.worker(executor).add(lambda: _settle(done, func, args))
        return done

    def worker(self, executor: Any) -> Worker:
        """A queue in place of the thread of an executor."""
        life = LIFE.get()
        key = executor if executor is not None else life
        worker = self._executors.get(key)
        if worker is None or worker.life is not life:
            worker = self._executors[key] = Worker(self, life)
        return worker

    # ---- the network ----

    async def create_server(self, factory: Any, *args: Any, **given: Any) -> Any:
        """Listen as the running process."""
        return self.network.listen(factory, given["sock"].getsockname())

    async def create_connection(
        self, factory: Any, host: str | None = None, port: int | None = None, **given: Any
    ) -> Any:
        """Connect as the running process."""
        return await self.network.connect(factory, host, port)

    async def getaddrinfo(
        self, host: str, port: int, *, type: int = socket.SOCK_STREAM
    ) -> list[tuple[Any, ...]]:
        """The only address of a host is its name."""
        return [(socket.AF_INET, type, 0, "", (host, port))]

    def add_signal_handler(self, number: int, callback: Callable[..., Any], *args: Any) -> None:
        """Keep it: `Node.terminate` calls it."""
        life = LIFE.get()
        if life is not None:
            life.signals[number] = (callback, args)

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:
        """Transports have no descriptor here."""
        raise AssertionError("the simulation has no descriptors to watch")

    add_reader = add_writer

    def remove_writer(self, fd: Any) -> bool:
        """There is none."""
        return False


def _settle(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if done.cancelled():
        return
    try:
        result = func(*args)
    except Exception as problem:  # noqa: BLE001 - it belongs to who waits
        done.set_exception(problem)
    else:
        done.set_result(result)


class Worker:
    """One thread of one life: its calls run one after the other, each after a delay."""

    def __init__(self, loop: SimLoop, life: Life | None) -> None:
        self.life = life
        self._loop = loop
        self._free_at = 0.0
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, call: Callable[[], None]) -> None:
        random = self.life.random if self.life is not None else self._loop.random
        delay = random.expovariate(1 / 0.0005) + (self.life.disk_delay_s if self.life else 0.0)
        self._free_at = max(self._free_at, self._loop.time()) + delay
        self._waiting.append(call)
        self._loop.call_at(self._free_at, self._next)

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()

    def finish(self) -> None:
        """Run the waiting calls now."""
        while self._waiting:
            self._waiting.popleft()()


class InlineExecutor(Executor):
    """In place of concurrent.futures.ThreadPoolExecutor: its calls are timers of the loop."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._worker: Worker | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                result = fn(*args, **given)
            except Exception as problem:  # noqa: BLE001 - it belongs to who waits
                done.set_exception(problem)
            else:
                done.set_result(result)

        loop = events._get_running_loop()
        if isinstance(loop, SimLoop):
            self._worker = loop.worker(self)
            self._worker.add(run)
        else:
            run()
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish the calls that were begun."""
        loop = events._get_running_loop()
        if wait and isinstance(loop, SimLoop):
            loop.worker(self).finish()
