"""The rules of injected faults: which requests a rule matches, how often, and what happens to them.

Rules are checked in the order in which they were added, and each rule has its own random seed.
broker/faults.py executes the result, and kstore.protocol decodes requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.errors.base import NAMES
from kstore.protocol.registry import APIS

__all__ = [
    "Fault",
    "FaultError",
    "FaultRules",
    "PartitionKey",
    "RequestFacts",
    "Strike",
    "read_fault",
    "shown",
]

PartitionKey = tuple[str, int]
"""Topic and partition. Partition -1 stands for a whole topic."""
WHOLE_TOPIC = -1
ACTIONS = ("error", "delay", "drop", "disconnect")
MOMENTS = ("before", "after")
MAX_DELAY_MS = 3_600_000
MAX_RULES = 1000
MASK = (1 << 64) - 1
CODES = {name: code for code, name in NAMES.items()} | {
    "INVALID_PRODUCE_OFFSET": ErrorCode.INVALID_PRODUCE_OFFSET
}


class FaultError(ValueError):
    """An invalid rule. The message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule: which requests it applies to, and what happens to them. None matches all."""

    action: str
    """``error``, ``delay``, ``drop`` (no answer) or ``disconnect``."""
    api: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    """A client id, or a pattern with ``*`` and ``?``."""
    node: int | None = None
    """The rule applies only on this broker."""
    code: int = 0
    """The error code of an ``error``."""
    delay_ms: int = 0
    when: str = "before"
    """``before`` the request is executed, which then does not happen, or ``after`` it, so that only
    the response is lost.
    """
    count: int | None = None
    """How many requests it applies to; None: all."""
    probability: float = 1.0
    seed: int = 0
    brokers: bool = False
    """The rule applies only to requests of other brokers."""


class RequestFacts(NamedTuple):
    """The properties of a request that rules check."""

    api: int
    client_id: str
    node: int
    from_broker: bool
    partitions: Collection[PartitionKey] = ()
    """Its topics and partitions. Required only if `FaultRules.names_topics`."""


class Strike(NamedTuple):
    """A rule that applies to a request, or to some topics and partitions in it."""

    fault: Fault
    partitions: tuple[PartitionKey, ...]
    """Empty: the whole request."""


class _Rule:
    """An active rule."""

    __slots__ = ("fault", "number", "state", "struck")

    def __init__(self, number: int, fault: Fault) -> None:
        self.number = number
        self.fault = fault
        self.struck = 0
        self.state = (fault.seed * 0x9E3779B97F4A7C15 + 1) & MASK

    @property
    def spent(self) -> bool:
        return self.fault.count is not None and self.struck >= self.fault.count

    def matches(self, facts: RequestFacts) -> bool:
        """Whether the rule matches the request, apart from its topics."""
        fault = self.fault
        return (
            not self.spent
            and fault.api in {None, facts.api}
            and fault.node in {None, facts.node}
            and fault.brokers == facts.from_broker
            and (fault.client_id is None or fnmatchcase(facts.client_id, fault.client_id))
        )

    def chance(self) -> bool:
        """Draw a random number by splitmix64: the same seed selects the same requests."""
        if self.fault.probability >= 1.0:
            return True
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53) < self.fault.probability


class FaultRules:
    """All rules of a broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: dict[int, _Rule] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, number: object) -> bool:
        return number in self._rules

    def add(self, fault: Fault) -> int:
        """Add a rule and return its number. Raises FaultError if there are too many."""
        if len(self._rules) >= MAX_RULES:
            raise FaultError(f"there are {MAX_RULES} faults already: remove some")
        self._last += 1
        self._rules[self._last] = _Rule(self._last, fault)
        return self._last

    def remove(self, number: int) -> bool:
        """Remove a rule; returns whether it existed."""
        return self._rules.pop(number, None) is not None

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()

    def rows(self, numbers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """The rules, or some of them, as JSON objects, with the number of requests that each
        applied to.
        """
        wanted = self._rules if numbers is None else numbers
        return [
            {"id": rule.number, **shown(rule.fault), "struck": rule.struck}
            for rule in map(self._rules.__getitem__, wanted)
        ]

    def concerns(self, api: int) -> bool:
        """Whether any rule may apply to requests of this API."""
        return any(
            rule.fault.api in {None, api} and not rule.spent for rule in self._rules.values()
        )

    def names_topics(self, facts: RequestFacts) -> bool:
        """Whether the matching rules depend on the request's topics."""
        return any(
            rule.fault.topic is not None and rule.matches(facts) for rule in self._rules.values()
        )

    def strike(self, facts: RequestFacts) -> list[Strike]:
        """The faults of this request. Delays add up. Of several errors for a partition, the first
        applies. If the request is dropped or disconnected before it is executed, no other rule
        applies.
        """
        found: list[Strike] = []
        failed: set[PartitionKey] = set()
        failed_whole = gone = False
        for rule in self._rules.values():
            fault = rule.fault
            ends = fault.action in {"drop", "disconnect"}
            if (ends and gone) or (fault.action == "error" and failed_whole):
                continue
            if not rule.matches(facts):
                continue
            partitions: tuple[PartitionKey, ...] = ()
            if fault.topic is not None:
                named = {tp for tp in facts.partitions if _is_at(fault, tp)}
                partitions = tuple(sorted(named - failed if fault.action == "error" else named))
                if not partitions:
                    continue
            if not rule.chance():
                continue
            rule.struck += 1
            found.append(Strike(fault, partitions))
            if fault.action == "error":
                failed.update(partitions)
                failed_whole = not partitions
            if ends:
                gone = True
                if fault.when == "before":
                    break
        return found


def _is_at(fault: Fault, tp: PartitionKey) -> bool:
    """Whether a rule matches a topic or partition."""
    topic, partition = tp
    named = fault.partition is None or partition in {fault.partition, WHOLE_TOPIC}
    return topic == fault.topic and named


def shown(fault: Fault) -> dict[str, Any]:
    """A rule as `read_fault` reads it, without fields that have their default."""
    row: dict[str, Any] = {"action": fault.action}
    for field in fields(Fault):
        value = getattr(fault, field.name)
        if value != field.default:
            row[field.name] = value
    if fault.api is not None:
        row["api"] = APIS[fault.api].name
    if fault.code:
        row["code"] = NAMES.get(fault.code, fault.code)
    return row


def read_fault(row: Any) -> Fault:
    """A rule from its JSON object. Raises FaultError if it is invalid."""
    if not isinstance(row, Mapping):
        raise FaultError(f"a fault is an object with an action, not {row!r}")
    known = sorted(field.name for field in fields(Fault))
    unknown = [name for name in row if name not in known]
    if unknown:
        raise FaultError(f"a fault has no field {unknown[0]!r}; it has {', '.join(known)}")
    values = {name: value for name, value in row.items() if value is not None}
    if values.get("action") not in ACTIONS:
        raise FaultError(
            f"action is {values.get('action')!r}; it must be one of {', '.join(ACTIONS)}"
        )
    for name, check, words in _CHECKS:
        if name in values and not check(values[name]):
            raise FaultError(f"{name} is {values[name]!r}; it must be {words}")
    if "api" in values:
        values["api"] = _api(values["api"])
    if "code" in values:
        values["code"] = _code(values["code"])
    fault = Fault(**values)
    _check_whole(fault, values)
    return fault


def _is_int(low: int, high: int) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return check


def _is_share(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= 1


_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("topic", lambda value: isinstance(value, str) and value != "", "a topic name"),
    ("partition", _is_int(0, 2**31 - 1), "a partition number"),
    ("client_id", lambda value: isinstance(value, str), "a client id or a pattern of one"),
    ("node", _is_int(0, 2**31 - 1), "a broker id"),
    ("delay_ms", _is_int(1, MAX_DELAY_MS), f"from 1 to {MAX_DELAY_MS}"),
    ("when", lambda value: value in MOMENTS, "before or after"),
    ("count", _is_int(1, 2**31 - 1), "the number of requests that it affects, at least 1"),
    ("probability", _is_share, "from 0 to 1"),
    ("seed", _is_int(-(2**63), 2**63 - 1), "a whole number"),
    ("brokers", lambda value: isinstance(value, bool), "true or false"),
)


def _check_whole(fault: Fault, given: Mapping[str, Any]) -> None:
    """Check the fields against each other."""
    if fault.partition is not None and fault.topic is None:
        raise FaultError("a fault with a partition needs its topic")
    for name, action in (("code", "error"), ("delay_ms", "delay")):
        if fault.action == action and name not in given:
            raise FaultError(f"a fault with the action {action} needs {name}")
        if fault.action != action and name in given:
            raise FaultError(f"{name} is for the action {action}, not for {fault.action}")


def _api(value: Any) -> int:
    """An API by its number, or by its name in any case."""
    if _is_int(0, 32767)(value) and value in APIS:
        return int(value)
    wanted = value.lower() if isinstance(value, str) else None
    for key, api in APIS.items():
        if api.name.lower() == wanted:
            return key
    raise FaultError(f"api is {value!r}; it must be an API's name, such as Produce, or its key")


def _code(value: Any) -> int:
    """An error by its number, or by its name in Kafka's table."""
    if _is_int(-1, 32767)(value) and value != 0:
        return int(value)
    code = CODES.get(value.upper(), 0) if isinstance(value, str) else 0
    if code == 0:
        raise FaultError(
            f"code is {value!r}; it must be an error's name, such as NOT_LEADER_OR_FOLLOWER, or "
            "its number other than 0"
        )
    return code
