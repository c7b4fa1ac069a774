"""How bugs are planted in kstore for the simulation. bugs/ and mutations.py fill the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute for the time of a simulation."""
CLUSTER = "--brokers 3 --workloads produce,read --seconds 12"
MUTATIONS: dict[str, Mutation] = {}
"""Every planted bug by its name."""


class Mutation(NamedTuple):
    """A planted bug, the rule that it breaks, and the simulation that shows it."""

    plant: Callable[[Put], None]
    rule: str
    arguments: str
    """Of `python -m tests.sim`."""
    explanation: str


def bug(
    name: str, rule: str, arguments: str, explanation: str, *places: tuple[Any, str], also: Any = ()
) -> Callable[[Any], Any]:
    """Plant the decorated object in these places (owner and attribute): a class, or a function
    whose first argument is what was there. Without places it is called with the `Put`, as each of
    ``also`` is.
    """

    def register(what: Any) -> Any:
        def plant(put: Put) -> None:
            for owner, attribute in places:
                is_class = isinstance(what, type)
                put(owner, attribute, what if is_class else _after(getattr(owner, attribute), what))
            for each in also if places else (what, *also):
                each(put)

        MUTATIONS[name] = Mutation(plant, rule, arguments, explanation)
        return what

    return register


def _after(was: Any, function: Any) -> Any:
    return lambda *given, **more: function(was, *given, **more)
