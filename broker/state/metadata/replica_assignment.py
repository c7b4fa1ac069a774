"""Chooses brokers for the replicas of new partitions. Leaders rotate over the brokers, and the
replicas of a partition are on as many racks as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kstore.broker.state.metadata.image import BrokerImage

__all__ = ["assign_replicas"]


def assign_replicas(
    brokers: Iterable[BrokerImage], count: int, factor: int, *, start: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of ``count`` partitions, with the leader first. ``factor`` is at most the number
    of brokers.

    ``start`` is the position of the first leader in the rotation, so that small topics do not all
    begin with the same broker. The distance of the other replicas from the leader increases with
    every round, so that if a broker fails, all others share its partitions.
    """
    order = _by_turns(brokers)
    # The assignment repeats after this many partitions, so few are computed for 10,000 partitions
    # on a few brokers.
    period = len(order) * max(1, len(order) - 1)
    known = [_replicas(order, factor, start + index) for index in range(min(count, period))]
    return tuple(known[index % period] for index in range(count))


def _by_turns(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """The brokers in an order that alternates racks as far as possible. Brokers without a rack
    count as one rack.
    """
    racks: dict[str | None, list[BrokerImage]] = {}
    for broker in sorted(brokers):
        racks.setdefault(broker.rack, []).append(broker)
    rows = [racks[rack] for rack in sorted(racks, key=lambda rack: (rack is None, rack))]
    longest = max(map(len, rows), default=0)
    return [row[place] for place in range(longest) for row in rows if place < len(row)]


def _replicas(order: list[BrokerImage], factor: int, turn: int) -> tuple[int, ...]:
    width = len(order)
    leader = order[turn % width]
    chosen = [leader]
    others = list(_others(order, turn))
    used = {leader.rack}
    while len(chosen) < factor:
        found = next((each for each in others if each.rack not in used), None)
        if found is None:  # a broker of each rack is placed: begin another round
            used.clear()
            continue
        chosen.append(found)
        others.remove(found)
        used.add(found.rack)
    return tuple(broker.node_id for broker in chosen)


def _others(order: list[BrokerImage], turn: int) -> Iterator[BrokerImage]:
    width = len(order)
    for step in range(width - 1):
        yield order[(turn + 1 + (turn // width + step) % (width - 1)) % width]
