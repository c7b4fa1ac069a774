"""Types and checks of arguments that accept several items. The types exclude str and mappings; the
message of each check says what to pass instead.

A str is a sequence of strs, so `delete_topics("xyz")` would delete x, y and z.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstore.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Headers", "Items", "Listed", "by_partition", "check_bool", "check_config", "check_int",
    "check_items", "check_name", "check_number", "items_of", "mapping_of", "partitions_of",
]  # fmt: skip

T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)


class Listed(Protocol[T_co]):
    """A list, a tuple, or another sequence. Not str and bytes, whose `in` accepts only their own
    type, and not a mapping, which has no `count`.
    """

    def __contains__(self, value: object, /) -> bool:
        """True if the value is one of the items."""

    def __iter__(self) -> Iterator[T_co]:
        """Iterate over the items."""

    def __len__(self) -> int:
        """The number of items."""

    def count(self, value: Any, /) -> int:
        """How often the value occurs."""


Items = Listed[T] | AbstractSet[T] | ValuesView[T] | Iterator[T]
"""Several items: a list, tuple, set, generator, or view of a dict."""

Headers = Mapping[str, "Buffer | None"] | Listed[tuple[str, "Buffer | None"]]
"""A record's headers: a mapping, or (name, value) pairs. Values are bytes or None."""

LARGEST = 2**63 - 1

_Kinds = type | tuple[type, ...]


def check_items(name: str, given: object, what: str) -> None:
    """Raise TypeError for a single item and for a mapping. `what` names the items, in the
    plural.
    """
    is_one = isinstance(given, (str, bytes, bytearray, memoryview)) or hasattr(given, "_fields")
    if is_one or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {_shown(given)}: pass a list of {what}, as in {name}=[...]")
    if isinstance(given, Mapping):
        raise TypeError(
            f"{name} is {_shown(given)}: pass a list of {what}, such as list(...) of its keys"
        )


def check_name(what: str, given: object) -> None:
    """Raise TypeError for a name that is not a str. `what` says what has the name."""
    if not isinstance(given, str):
        raise TypeError(f"{what} is {_shown(given)}: pass its name as a str")


def check_int(name: str, given: object, low: int, high: int) -> None:
    """Raise TypeError for what is not an int, such as text and True, and ValueError for an int that
    is not in low to high. If ``high`` is 2^63 - 1, the message has only ``low``. numpy's integers
    are ints, too.
    """
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise TypeError(f"{name} is {_shown(given)}: pass an int")
    _check_range(name, int(given), low, high)


def check_number(name: str, given: object, low: float, high: float) -> None:
    """Like `check_int`, for numbers that may have a fraction."""
    if not isinstance(given, Real) or isinstance(given, bool):
        raise TypeError(f"{name} is {_shown(given)}: pass a number")
    _check_range(name, given if isinstance(given, (int, float)) else float(given), low, high)


def check_bool(name: str, given: object) -> None:
    """Raise TypeError for what is neither True nor False: the text "false" would count as true."""
    if not isinstance(given, bool):
        raise TypeError(f"{name} is {_shown(given)}: pass True or False")


def _check_range(name: str, given: float, low: float, high: float) -> None:
    if not low <= given <= high:
        allowed = f"{low} or more" if high == LARGEST else f"{low} to {high}"
        raise ValueError(f"{name} is {given}: use {allowed}")


def items_of(name: str, given: Iterable[T], kinds: _Kinds, what: str) -> list[T]:
    """The items as a list. Raises TypeError also for an item that is not one of `kinds`."""
    check_items(name, given, what)
    found = list(given)
    for item in found:
        if not isinstance(item, kinds):
            raise TypeError(f"{name} contains {_shown(item)}: pass a list of {what}")
    return found


def partitions_of(name: str, given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Like `items_of`, for partitions. A plain (topic, partition) tuple counts as a
    TopicPartition.
    """
    rows = items_of(name, given, (tuple, list), "TopicPartition")
    return [_partition(name, row) for row in rows]


def mapping_of(name: str, given: Mapping[K, T], what: str) -> Mapping[K, T]:
    """The mapping. Raises TypeError for anything else. `what` describes its keys and values."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {_shown(given)}: pass a dict of {what}")
    return given


def by_partition(
    name: str, given: Mapping[TopicPartition, T], what: str, kinds: _Kinds = object
) -> dict[TopicPartition, T]:
    """A mapping whose keys are partitions or plain (topic, partition) tuples. `what` describes the
    values, which are of `kinds`.
    """
    rows = mapping_of(name, given, f"TopicPartition -> {what}")
    for value in rows.values():
        if not isinstance(value, kinds):
            raise TypeError(
                f"{name} contains {_shown(value)}: pass a dict of TopicPartition -> {what}"
            )
    return {_partition(name, key): value for key, value in rows.items()}


def check_config(key: str, value: object) -> None:
    """Raise TypeError for the value of a config that is not a str, such as a number."""
    if not isinstance(value, (str, type(None))):
        raise TypeError(f"{key} is {_shown(value)}: pass text, or None for the default")


def _partition(name: str, given: Sequence[Any]) -> TopicPartition:
    is_one = isinstance(given, (tuple, list)) and len(given) == 2
    if not is_one or not isinstance(given[0], str) or not isinstance(given[1], int):
        raise TypeError(f"{name} contains {_shown(given)}: pass TopicPartition(topic, partition)")
    return TopicPartition(*given)


def _shown(given: object) -> str:
    text = repr(given)
    return f"the {type(given).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
