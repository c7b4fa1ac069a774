"""Planted bugs of elections (mutations.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore.broker.coordination import registration
from kstore.broker.state.controller import election, events

Put = Callable[[Any, str, Any], None]


def any_replica_leads(put: Put) -> None:
    clean = election.after_change

    def after_change(partition: Any, alive: Any, leaving: Any = (), **given: Any) -> Any:
        if partition.leader in alive and partition.leader not in leaving:
            return clean(partition, alive, leaving, **given)
        others = tuple(each for each in partition.replicas[::-1] if each != partition.leader)
        careless = partition._replace(
            isr=(*others, partition.leader), replicas=(*others, partition.leader)
        )
        found = clean(careless, alive, leaving, **given)
        return None if found is None else found._replace(replicas=partition.replicas)

    put(election, "after_change", after_change)


def same_epoch(put: Put) -> None:
    change = events._change

    def same(state: Any, topic: str, index: int, before: Any, new: Any, *rules: Any) -> Any:
        made = change(state, topic, index, before, new, *rules)
        return made._replace(image=made.image._replace(leader_epoch=before.leader_epoch))

    put(events, "_change", same)


def unclean_is_eligible(put: Put) -> None:
    put(registration, "unclean_shutdowns", lambda store, registered: {})
