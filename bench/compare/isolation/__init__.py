"""The effect of other load on small records: their end-to-end latency, alone and with each kind of
load that can hold a broker, and the rate of that load. It starts its own pair of brokers. Each row
ends with a verdict: PASS, or what FALLS SHORT.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from bench import brokers, frames
from bench.brokers import KAFKA, KSTORE, Broker, create_topic
from bench.compare.cluster import Cluster, cluster_makers
from bench.compare.isolation import disk, follower, neighbours
from bench.compare.isolation.holds import Holds, Stolen
from bench.compare.isolation.neighbours import Place, Sizes, Work
from bench.compare.isolation.probe import Probe
from bench.compare.pair import LESS, MORE, Pair, compared
from bench.compare.tls import Certificates, with_tls
from bench.load import Load
from bench.measure import Figures, Settings, Side, progress, take_turns
from bench.report import Goal, Row

__all__ = ["CASES", "Case", "OnePair", "rows", "rows_of"]

SMALL = follower.SMALL
HALF = Goal(0.5, at_least=False)
TWICE = Goal(2.0)
HOLD = Goal(10.0, at_least=False, of="value")
HELD = "ms longest hold of the loop"
SHOWN = 3
REPORTED_SHARE = 0.001
"""A smaller share of the cores that a hypervisor took is not shown."""
NEAR = 0.9
"""The share of the disk's own rate that counts as its limit."""
NEAR_CLIENT = 0.95
"""The share of what the producers reach by themselves that counts as their limit."""
CLIENT = "the client alone"
SAME = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": str(neighbours.REMOVED_AFTER_MS),
}
FOLLOWER = "a follower that catches up with 5 GB"


class Case(NamedTuple):
    """One load that runs beside the small records."""

    start: Callable[[Place], AbstractContextManager[Work]]
    unit: str = ""
    """The unit of its rate; a load without a rate has none."""
    goal: Goal = MORE
    limit: str = ""
    """The limit of the disk that is as good as the goal, if any: a field of `disk.Limits`."""
    rounds: int = 2
    producers: int = 0
    """The number of producers. What they reach with a peer that only acknowledges is as good as the
    goal.
    """


# Creation is last, because its topics stay.
CASES: dict[str, Case] = {
    "nothing": Case(neighbours.nothing),
    "one bulk producer": Case(neighbours.one_producer, "MB/s", TWICE, "write", producers=1),
    "four bulk producers": Case(neighbours.four_producers, "MB/s", TWICE, "write", producers=4),
    "a cold reader": Case(neighbours.cold_reader, "MB/s", TWICE, "read"),
    "deletion of a topic of 5 GB": Case(neighbours.deletion, "MB/s"),
    "a classic group of 1,000 members that rebalances": Case(
        neighbours.classic_group, "rebalances/s"
    ),
    "a consumer group of 1,000 members that rebalances": Case(
        neighbours.consumer_group, "rebalances/s"
    ),
    "compaction": Case(neighbours.compaction, "MB/s"),
    "200 TLS handshakes a second": Case(
        neighbours.handshakes, "handshakes/s", Goal(190, of="value")
    ),
    "creation of 10,000 partitions": Case(neighbours.creation, "partitions/s", rounds=1),
}


def _watched(broker: Broker, holds: Holds, work: Work) -> Figures:
    """The latencies of the small records during the load, the load's rate, and the longest hold of
    kstore's loop.
    """
    with Probe(broker, SMALL) as probe:
        probe.begin()
        holds.begin()
        stolen = Stolen()
        begin = time.monotonic()
        rate = work()
        elapsed = time.monotonic() - begin
        taken = stolen.share()
        held = holds.longest()
        found = probe.finish()
    if not found["priority"]:
        progress("  the probe has no real-time priority: its own waits for a core are in the times")
    text = ""
    if holds.are_known:
        text = f"; the loop waited for a core {holds.core_wait_share():.0%} of the time"
    if held:
        names = (f"{name} {longest:.0f} ms" for longest, name in held[:SHOWN])
        text += f", and was held by {', '.join(names)}"
    if taken >= REPORTED_SHARE:
        text += f"; the hypervisor took {taken:.1%} of the cores"
    progress(
        f"    {type(broker).__name__}: p50 {found['p50']:.3g}, p99 {found['p99']:.3g}, "
        f"max {found['max']:.4g} ms (at {found['max at']:.1f} s) of {found['records']:.0f} "
        f"records; rate {rate:.4g} in "
        f"{elapsed:.1f} s{text}"
    )
    longest = {"hold": held[0][0] if held else 0.0} if holds.are_known else {}
    return found | {"rate": rate, "stolen": taken} | longest


def warm(broker: Broker, topic: str, seconds: float) -> None:
    """Warm up, because the JVM compiles at run time. Both sides get small requests of both kinds
    for the same time: first as fast as possible, then at the probe's rate.
    """
    batch = frames.record_batch([bytes(100)])

    def check(answer: bytes) -> None:
        if code := frames.produce_error(answer, topic):
            raise RuntimeError(f"Produce was answered with error {code}")

    address = (broker.host, broker.port)
    with Load(address, [frames.produce(topic, 0, batch)] * 4, check) as load:
        load.run(seconds)
    fetch = frames.fetch(topic, 0, 0, max_bytes=1024)
    with Load(address, [fetch] * 4, lambda answer: None) as load:
        load.run(seconds)
    with Probe(broker, topic) as probe:
        probe.begin()
        time.sleep(seconds)
        probe.finish()


class OnePair:
    """The two brokers of all cases except the follower's."""

    def __init__(self, settings: Settings, sizes: Sizes) -> None:
        self._settings, self._sizes = settings, sizes
        self.folder = settings.scratch / "isolation"
        certificates = Certificates(self.folder)
        self.places: dict[str, Place] = {}
        self._holds: dict[str, Holds] = {}
        for name, broker in brokers.make(self.folder, settings).items():
            broker.overrides |= SAME
            self._holds[name] = Holds(broker)
            door = with_tls(broker, certificates)
            self.places[name] = Place(broker, door, sizes, certificates)

    def start(self) -> None:
        """Start both brokers, one after the other, and warm them up."""
        for place in self.places.values():
            place.broker.start()
            create_topic(place.broker, SMALL, 1)
            warm(place.broker, SMALL, self._sizes.warm_seconds)
            if not self._settings.alone:
                with neighbours.one_producer(place) as work:
                    work()

    def stop(self) -> None:
        """Stop both brokers, and remove their data."""
        for place in self.places.values():
            place.broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def measure(self, name: str, case: Case) -> dict[str, Side]:
        """The figures of both sides in a case, in turns."""

        def turn(side: str) -> Figures:
            place = self.places[side]
            with case.start(place) as work:
                return _watched(place.broker, self._holds[side], work)

        def alone() -> Figures:
            rate = neighbours.producers_alone(self._sizes, case.producers)
            progress(f"    {CLIENT}: rate {rate:.4g}")
            return {"rate": rate}

        turns = {side: lambda side=side: turn(side) for side in self.places}
        if case.producers:
            turns[CLIENT] = alone
        return take_turns(name, turns, min(case.rounds, self._settings.pick(2, 1)))


def _follower(settings: Settings, sizes: Sizes) -> dict[str, Side]:
    def turn(make: Callable[[Path], Cluster]) -> Figures:
        folder = settings.scratch / "isolation-cluster"
        try:
            cluster = make(folder)
            holds = Holds(cluster.brokers[follower.LEADER])
            with follower.catching_up(cluster, sizes) as (leader, work):
                warm(leader, SMALL, sizes.warm_seconds)
                return _watched(leader, holds, work)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    made = cluster_makers(settings, brokers.SAME)
    turns = {side: lambda make=make: turn(make) for side, make in made.items()}
    return take_turns(FOLLOWER, turns, 1)


def _worst(sides: Mapping[str, Side], figure: str) -> dict[str, Side]:
    """The maximum over all turns."""
    return {
        name: Side(
            {figure: [max(side.values[figure])]} if figure in side.values else {}, side.state
        )
        for name, side in sides.items()
    }


def _taken(sides: Mapping[str, Side]) -> str:
    """A note for maxima: a stop of the machine delays small records, whichever broker runs."""
    shares = {name: side.median("stolen") or 0.0 for name, side in sides.items() if name != CLIENT}
    if max(shares.values(), default=0.0) < REPORTED_SHARE:
        return ""
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return f"cores taken by the hypervisor: {text}"


def _limits(
    case: Case, sides: Mapping[str, Side], found: disk.Limits
) -> Iterator[tuple[str, float, float]]:
    """A limit of a case that no broker can pass: its name, its rate in MB/s, and the share of it
    that counts as the limit.
    """
    if case.limit:
        yield "the disk alone", float(getattr(found, case.limit)), NEAR
    if (alone := sides.get(CLIENT, Side()).median("rate")) is not None:
        yield CLIENT, alone, NEAR_CLIENT


def _rate_goal(case: Case, sides: Mapping[str, Side], found: disk.Limits) -> Goal:
    """The case's own goal, or the nearest limit instead if that was reached."""
    ours = sides[KSTORE].median("rate")
    theirs = sides[KAFKA].median("rate") if KAFKA in sides else None
    if ours is None or theirs is None or ours >= case.goal.limit * theirs:
        return case.goal
    limits = [rate * share for _, rate, share in _limits(case, sides, found)]
    reached = [limit for limit in limits if ours >= limit]
    return Goal(min(reached), of="value") if reached else case.goal


def rows_of(
    name: str, case: Case, sides: Mapping[str, Side], found: disk.Limits
) -> tuple[list[Row], str]:
    """The rows of a case, and the sentence about them."""
    words = f"beside {name}" if case.unit else "alone"
    made = [
        compared("isolation", words, sides, "p50", "ms p50", LESS),
        compared("isolation", words, sides, "p99", "ms p99", HALF),
        compared("isolation", words, sides, "p99.9", "ms p99.9", LESS),
        compared(
            "isolation",
            words,
            _worst(sides, "max"),
            "max",
            "ms max of all turns",
            HALF,
            _taken(sides),
        ),
        compared("isolation", words, _worst(sides, "hold"), "hold", HELD, HOLD),
    ]
    if case.unit:
        limits = _limits(case, sides, found)
        note = "; ".join(f"{what}: {rate:.0f} MB/s" for what, rate, _ in limits)
        goal = _rate_goal(case, sides, found)
        made.append(compared("isolation", name, sides, "rate", case.unit, goal, note))
    bound = [row for row in made if row.unit not in ("ms p50", "ms p99.9")]
    short = [_shortfall(row) for row in bound if row.reached is False]
    if any(row.reached is None for row in bound):
        return made, f"{words}: not compared"
    return made, f"{words}: " + (f"FALLS SHORT: {'; '.join(short)}" if short else "PASS")


def _shortfall(row: Row) -> str:
    if row.value is None:
        return f"{row.unit}: {row.state}"
    ratio = "" if row.ratio is None else f", {row.ratio:.3g}x Kafka's"
    return f"{row.unit} {row.value:.4g}{ratio} (goal {row.goal})"


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """The latency beside each load, and the load's rate."""
    del pair
    sizes = Sizes(settings)
    disk.require_room(settings.scratch, sizes.room_bytes)
    found = disk.limits(settings.scratch, sizes.limit_bytes)
    progress(f"  the disk alone: writes {found.write:.0f} MB/s, reads {found.read:.0f} MB/s")
    wanted = {name: case for name, case in CASES.items() if settings.wants(name)}
    sentences = []
    if wanted:
        one_pair = OnePair(settings, sizes)
        try:
            one_pair.start()
            for name, case in wanted.items():
                progress(f"  {name}")
                made, sentence = rows_of(name, case, one_pair.measure(name, case), found)
                sentences.append(sentence)
                yield from made
        finally:
            one_pair.stop()
    if settings.wants(FOLLOWER):
        progress(f"  {FOLLOWER}")
        case = Case(neighbours.nothing, "MB/s", TWICE, "write")
        made, sentence = rows_of(FOLLOWER, case, _follower(settings, sizes), found)
        sentences.append(sentence)
        yield from made
    progress("\n".join(["", *sentences, ""]))
