"""The time of a rebalance: 50 members join an empty group at once, and one of them leaves, until
every partition has exactly one owner and all members are in the same epoch, with the classic and
the consumer protocol. The members' own time is small compared with their heartbeat interval, which
is the same for both brokers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from bench.brokers import Broker, create_topic, delete_topic, exchange_once
from bench.compare.pair import LESS, Pair, compared, require
from bench.compare.rebalance.members import (
    ClassicMember,
    ConsumerMember,
    Group,
    Member,
    find_coordinator,
    first_error,
    stranger,
)
from bench.measure import Figures, Settings, cpu_seconds, progress
from bench.report import Row

__all__ = ["rows", "wait_for_coordinator"]

MEMBERS = 50
UNKNOWN_MEMBER_ID = 25
PARTITIONS = 100
TOPIC = "rebalance"
KINDS: dict[str, tuple[type[Member], dict[int, str]]] = {
    "classic": (ClassicMember, {11: "JoinGroup", 14: "SyncGroup"}),
    "consumer": (ConsumerMember, {68: "ConsumerGroupHeartbeat"}),
}


def wait_for_coordinator(broker: Broker, group: str) -> None:
    """Return when the group's coordinator is ready: a new broker has to create its topic and load
    it.
    """
    deadline = time.monotonic() + 60
    while True:
        code = first_error(exchange_once(broker, find_coordinator(group)))
        if not code:
            code = first_error(exchange_once(broker, stranger(group)))
            if code == UNKNOWN_MEMBER_ID:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no coordinator of {group} within 60 s, error {code}")
        time.sleep(0.05)


def _once(broker: Broker, kind: str, group: str) -> Figures:
    members, apis = KINDS[kind]
    require(broker, apis)
    wait_for_coordinator(broker, group)
    with Group(broker, members, group, TOPIC, PARTITIONS, MEMBERS) as found:
        before = cpu_seconds(broker.pid)
        formed = found.form()
        middle = cpu_seconds(broker.pid)
        lost = found.lose_one()
        return {
            "form": formed * 1e3,
            "form CPU": (middle - before) * 1e3,
            "leave": lost * 1e3,
            "leave CPU": (cpu_seconds(broker.pid) - middle) * 1e3,
        }


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Time and broker CPU of both rebalances, for both protocols."""
    for broker in pair.running.values():
        create_topic(broker, TOPIC, PARTITIONS)
    numbers = itertools.count()
    for kind in KINDS:
        case = f"{kind} protocol, {MEMBERS} members"
        if not settings.wants(case):
            continue
        progress(f"  {case}")

        def turn(name: str, broker: Broker, kind: str = kind) -> Figures:
            del name
            return _once(broker, kind, f"rebalance-{kind}-{next(numbers)}")

        pair.turns(f"{case}, warm-up", turn, settings.pick(2, 1))
        sides = pair.turns(case, turn, settings.pick(5, 2))
        for figure, words in (("form", "join at once"), ("leave", "one leaves")):
            yield compared("rebalance", f"{case}: {words}", sides, figure, "ms", LESS)
            yield compared(
                "rebalance", f"{case}: {words}", sides, f"{figure} CPU", "broker CPU-ms", LESS
            )
    for broker in pair.running.values():
        delete_topic(broker, TOPIC)
