"""The Spark source and sink compared with Spark's own Kafka connector: the same queries, on the
same kstore broker, in the same Spark, in turns. CPU is that of the JVM with all its Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bench.measure import Figures, Settings, Side, progress, take_turns
from bench.pipeline.latency import Stream
from bench.pipeline.parts import NAMES
from bench.pipeline.queries import Work
from bench.pipeline.session import Bench
from bench.report import Goal, Row

__all__ = ["compared", "latencies", "rows"]

PEER = "Spark's connector"
TURNS = 3
THROUGH_BROKERS, FROM_SEGMENTS = 1.5, 3.0
SIZES = ((100, 4_000_000), (1000, 1_000_000))
"""The size of a value in bytes, and the number of records."""

# The comparisons: the query, what kstore does differently, and the goal for rows per CPU second.
READS: tuple[tuple[str, str, str, float | None], ...] = (
    ("count", "brokers", "", THROUGH_BROKERS),
    ("count", "segments", "", FROM_SEGMENTS),
    ("count", "segments", "only column offset", None),
    ("sum", "brokers", "", THROUGH_BROKERS),
    ("sum", "brokers", "only column value", None),
    ("sum", "segments", "", FROM_SEGMENTS),
    ("sum", "segments", "only column value", None),
    ("text", "brokers", "", THROUGH_BROKERS),
    ("text", "brokers", "only column value, as STRING", None),
    ("Parquet", "brokers", "", THROUGH_BROKERS),
    ("Parquet", "segments", "", FROM_SEGMENTS),
    ("stream", "brokers", "", THROUGH_BROKERS),
)
TASKS = (1, 4)
"""For a job that writes. The session has a thread for each core."""
WRITES = (("exactly once", None), ("at least once", 1.0))
LATENCY = 0.7
STREAM = "stream latency"
ASYNCHRONOUS = "asynchronous progress"


def rows(settings: Settings) -> Iterator[Row]:
    """All rows of the group; one Spark and one broker for all."""
    with Bench(settings.scratch / "pipeline") as bench:
        for size, full in SIZES:
            count = settings.pick(full, full // 10)
            work = Work(bench, f"values-{size}", count)
            if settings.wants(f"read {size} B"):
                bench.fill(work.topic, count, size)
                yield from _reads(settings, work, size)
            for tasks in TASKS:
                yield from _writes(settings, work, size, tasks)
        if settings.wants(STREAM):
            yield from _latency(settings, bench)


def _reads(settings: Settings, work: Work, size: int) -> Iterator[Row]:
    for query in dict.fromkeys(name for name, *_ in READS):
        label = f"{query} {size} B"
        if not settings.wants(label):
            continue
        progress(f"  {label}")
        shown = [(way, note, goal) for name, way, note, goal in READS if name == query]
        cases = {PEER: work.read(query, "kafka", "")}
        cases |= {f"{way} {note}": work.read(query, way, note) for way, note, _ in shown}
        sides = _turns(label, cases, settings)
        for way, note, goal in shown:
            ours = sides[f"{way} {note}"]
            yield from compared(f"{label}, {_words(way, note)}", ours, sides[PEER], goal)


def _writes(settings: Settings, work: Work, size: int, tasks: int) -> list[Row]:
    label = f"write {size} B, {tasks} task{'s' * (tasks > 1)}"
    if not settings.wants(label):
        return []
    progress(f"  {label}")
    cases = {PEER: work.write("kafka", "", size, tasks)}
    cases |= {delivery: work.write("kstore", delivery, size, tasks) for delivery, _ in WRITES}
    sides = _turns(label, cases, settings)
    return [
        row
        for delivery, goal in WRITES
        for row in compared(f"{label}, {delivery}", sides[delivery], sides[PEER], goal)
    ]


def _latency(settings: Settings, bench: Bench) -> Iterator[Row]:
    progress(f"  {STREAM}")
    stream = Stream(bench, settings.pick(20, 5))
    for label, asynchronous in ((STREAM, False), (f"{STREAM}, {ASYNCHRONOUS}", True)):
        cases = {
            name: stream.by(form, asynchronous=asynchronous)
            for name, form in ((PEER, "kafka"), ("", "kstore"))
        }
        yield from latencies(_turns(label, cases, settings), label)


def latencies(sides: dict[str, Side], label: str = STREAM) -> list[Row]:
    """p50 and p99 with the goal, and how many cores Spark used."""
    figures = (
        ("p50_ms", "p50 from append to sink", "ms", Goal(LATENCY, at_least=False)),
        ("p99_ms", "p99 from append to sink", "ms", Goal(LATENCY, at_least=False)),
        ("cpu_share", "CPU s of Spark per s", "s", None),
    )
    ours, theirs = sides[""], sides[PEER]
    return [
        Row(
            "pipeline", f"{label}: {words}", ours.median(figure), unit, PEER,
            theirs.median(figure), goal, spread=ours.spread(figure),
            peer_spread=theirs.spread(figure), state=ours.state, peer_state=theirs.state,
        )
        for figure, words, unit, goal in figures
    ]  # fmt: skip


def _turns(
    label: str, cases: Mapping[str, Callable[[], Figures]], settings: Settings
) -> dict[str, Side]:
    """Measure when the JVM has compiled what each side runs."""
    warm = take_turns(f"{label}, warming up", cases, settings.pick(2, 1))
    sides = take_turns(label, cases, settings.pick(TURNS, 2))
    for name, side in sides.items():
        side.state = side.state or warm[name].state
    return sides


def _words(way: str, note: str) -> str:
    return (f"through {way}" if way == "brokers" else f"from {way}") + (f", {note}" if note else "")


def compared(case: str, ours: Side, theirs: Side, goal: float | None) -> list[Row]:
    """Rows per CPU second with the goal, then the other figures, such as where the CPU seconds of a
    million rows went.
    """
    figures = (
        ("per_cpu_s", "rows per CPU s", "1/s", Goal(goal) if goal else None),
        ("rate", "rows/s", "1/s", None),
        ("cpu_us", "CPU s per million rows", "s", None),
        ("all_us", "the same with the broker's", "s", None),
        *((part, f"of these, {words}", "s", None) for part, words in NAMES.items()),
    )
    return [
        Row(
            "pipeline",
            f"{case}: {words}",
            ours.median(figure),
            unit,
            PEER,
            theirs.median(figure),
            limit,
            spread=ours.spread(figure),
            peer_spread=theirs.spread(figure),
            state=ours.state,
            peer_state=theirs.state,
        )
        for figure, words, unit, limit in figures
        if figure not in NAMES or figure in ours.values
    ]
