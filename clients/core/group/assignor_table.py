"""The assignors by name, as `partition.assignment.strategy` has them."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.clients.core.group.assignors import Assignor, RangeAssignor, RoundRobinAssignor
from kstore.clients.core.group.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from kstore.config.definition import ConfigError

__all__ = ["ASSIGNORS", "make_assignor"]

ASSIGNORS: Mapping[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_CLASSES = {
    f"org.apache.kafka.clients.consumer.{rule.__name__}": rule for rule in ASSIGNORS.values()
}
"""Kafka's names for them."""
_KEY = "partition.assignment.strategy"


def make_assignor(item: object) -> Assignor:
    """An assignor of its own for one consumer, from a name (Kafka's class names too) or from a
    subclass of Assignor; an instance is taken as it is. ConfigError for anything else.
    """
    if isinstance(item, Assignor):
        return item
    if isinstance(item, type) and issubclass(item, Assignor):
        return item()
    rule = ASSIGNORS.get(item) or _CLASSES.get(item) if isinstance(item, str) else None
    if rule is None:
        names = ", ".join(ASSIGNORS)
        text = f"{_KEY}: {item!r} is none of {names}, and no kstore.clients.Assignor"
        raise ConfigError(text, key=_KEY)
    return rule()
