"""The table of server-side assignors (KIP-848): see range_assignor.py and uniform_assignor.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kstore.broker.state.groups.consumer.assignor_spec import Assignments, GroupSpec
from kstore.broker.state.groups.consumer.range_assignor import assign_range
from kstore.broker.state.groups.consumer.uniform_assignor import assign_uniform
from kstore.broker.state.work import Work

__all__ = ["ASSIGNORS"]

ASSIGNORS: Mapping[str, Callable[[GroupSpec], Work[Assignments]]] = {
    "range": assign_range,
    "uniform": assign_uniform,
}
"""Name to function. The result depends only on the input, and has an entry for every member."""
