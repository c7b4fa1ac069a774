"""Which brokers hold the replicas of new partitions: leaders go round the brokers, and replicas of
one partition are on as many racks as there are. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kstore.broker.state.metadata.image import BrokerImage

__all__ = ["assign_replicas"]


def assign_replicas(
    brokers: Iterable[BrokerImage], count: int, factor: int, *, start: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of ``count`` partitions, the first to lead in front; ``factor`` is at most the
    number of brokers.

    ``start`` says how far round the brokers it begins, so that small topics don't all begin at the
    same one. The other replicas follow the leader at a distance that grows with every round, so
    that what a broker leads is shared among all others when it goes.
    """
    order = _by_turns(brokers)
    # After so many it begins anew: of 10,000 partitions on a few brokers few are worked out.
    period = len(order) * max(1, len(order) - 1)
    known = [_replicas(order, factor, start + index) for index in range(min(count, period))]
    return tuple(known[index % period] for index in range(count))


def _by_turns(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """The brokers so that neighbours are on different racks, as far as that goes. Those without a
    rack are on one together.
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
        if found is None:  # all racks have one: another round of them
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
