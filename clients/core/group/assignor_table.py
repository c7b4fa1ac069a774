"""The assignors by name, for `partition.assignment.strategy`."""

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
"""Kafka's names of the assignors."""
_KEY = "partition.assignment.strategy"


def make_assignor(item: object) -> Assignor:
    """A new assignor for one consumer, from a name (including Kafka's class names) or a subclass of
    Assignor; an instance is used itself. Raises ConfigError for anything else.
    """
    if isinstance(item, Assignor):
        return item
    if isinstance(item, type) and issubclass(item, Assignor):
        return item()
    rule = ASSIGNORS.get(item) or _CLASSES.get(item) if isinstance(item, str) else None
    if rule is None:
        names = ", ".join(ASSIGNORS)
        text = f"{_KEY}: {item!r} is not one of {names}, nor a kstore.clients.Assignor"
        raise ConfigError(text, key=_KEY)
    return rule()
