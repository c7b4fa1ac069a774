"""Client quotas (KIP-13, KIP-546, KIP-612): which entities and values are valid, which entities
match a filter, and which entity's quota applies to a client.

Other files store quotas and throttle clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import NamedTuple, TypeAlias

from kstore.errors import ErrorCode

__all__ = [
    "CLIENT_ID",
    "IP",
    "QUOTA_KEYS",
    "USER",
    "Alteration",
    "Entity",
    "Filter",
    "QuotaError",
    "check_entity",
    "check_filter",
    "check_value",
    "entity_of",
    "matches",
    "precedence",
]

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (CLIENT_ID, USER, IP)
TYPES_IN_WORDS = ", ".join(ENTITY_TYPES)

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in the order of ENTITY_TYPES. The name None means the type's default
entity.
"""

LONG, INT, DOUBLE = "LONG", "INT", "DOUBLE"
MAX_VALUES = {LONG: float(2**63 - 1), INT: float(2**31 - 1), DOUBLE: float("inf")}
FRACTION = 1e-6
"""The tolerance for whole numbers, since clients send them as doubles."""

USER_KEYS = {
    "producer_byte_rate": LONG,
    "consumer_byte_rate": LONG,
    "request_percentage": DOUBLE,
    "controller_mutation_rate": DOUBLE,
}
IP_KEYS = {"connection_creation_rate": INT}
QUOTA_KEYS = USER_KEYS | IP_KEYS
"""Quota key to the type of its value."""

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
MATCH_TYPES = {EXACT: "exact", DEFAULT: "default", SPECIFIED: "any"}


class QuotaError(Exception):
    """The error for an alteration or a filter: Kafka's error code and a message."""

    def __init__(self, message: str, code: int = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Alteration(NamedTuple):
    """One quota to set, or to remove if the value is None."""

    key: str
    value: float | None


class Filter(NamedTuple):
    """One component of a filter: an entity type, how it is matched, and the name for EXACT."""

    entity_type: str
    match_type: int
    name: str | None


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity in its normal form. If a type is named twice, the last name applies."""
    named = dict(pairs)
    known = [(kind, named.pop(kind)) for kind in ENTITY_TYPES if kind in named]
    return (*known, *named.items())


def check_entity(entity: Entity) -> Mapping[str, str]:
    """The quota keys that an entity may have, with their types. Raises QuotaError for an invalid
    entity.
    """
    if not entity:
        raise QuotaError(f"The quota has no entity; name one by {TYPES_IN_WORDS}.")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise QuotaError(f"There are no quotas by '{kind}'; use {TYPES_IN_WORDS}.")
        if name == "":
            raise QuotaError(f"The {kind} is empty; give its name, or null for the default.")
    names = dict(entity)
    if IP not in names:
        return USER_KEYS
    if len(names) > 1:
        raise QuotaError(
            f"An ip can't be combined with other entities; leave out {_others(names)}."
        )
    return IP_KEYS


def check_value(keys: Mapping[str, str], key: str, value: float) -> None:
    """Raise QuotaError unless the value is valid for this key. NaN is accepted, as in Kafka."""
    kind = keys.get(key)
    if kind is None:
        raise QuotaError(f"This entity has no quota '{key}'; it has {', '.join(keys)}.")
    if value <= 0:
        raise QuotaError(f"{key} is {value}; set it above 0, or remove it for no limit.")
    if value > MAX_VALUES[kind]:
        raise QuotaError(f"{key} is {value:.0f}; the maximum is {MAX_VALUES[kind]:.0f}.")
    if kind != DOUBLE and not isnan(value) and abs(value - int(value + FRACTION)) > FRACTION:
        raise QuotaError(f"{key} is {value}; give a whole number.")


def check_filter(components: Sequence[Filter]) -> None:
    """Raise QuotaError unless these components form a valid filter."""
    seen: set[str] = set()
    for part in components:
        if part.entity_type in seen:
            raise QuotaError(f"The filter has two parts for '{part.entity_type}'; keep one.")
        if not part.entity_type:
            raise QuotaError(f"A part of the filter has no entity type; use {TYPES_IN_WORDS}.")
        if part.entity_type not in ENTITY_TYPES:
            raise QuotaError(
                f"There are no quotas by '{part.entity_type}'; use {TYPES_IN_WORDS}.",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        _check_match(part)
        seen.add(part.entity_type)
    if IP in seen and len(seen) > 1:
        raise QuotaError(
            f"A filter for ip can't be combined with others; leave out {_others(seen)}."
        )


def _others(kinds: Iterable[str]) -> str:
    """The entity types except the address."""
    return " and ".join(sorted(kind for kind in kinds if kind != IP))


def _check_match(part: Filter) -> None:
    how = MATCH_TYPES.get(part.match_type)
    if how is None:
        known = ", ".join(f"{number} ({word})" for number, word in MATCH_TYPES.items())
        raise QuotaError(f"'{part.entity_type}' has the match type {part.match_type}; use {known}.")
    if part.match_type == EXACT and part.name is None:
        raise QuotaError(f"'{part.entity_type}' has the match type exact; give its name.")
    if part.match_type != EXACT and part.name is not None:
        raise QuotaError(
            f"'{part.entity_type}' has the match type '{how}'; leave out the name '{part.name}'."
        )


def matches(entity: Entity, components: Sequence[Filter], *, strict: bool) -> bool:
    """Whether a filter matches an entity. A strict filter matches only entities without other
    types.
    """
    if strict and len(entity) != len(components):
        return False
    names = dict(entity)
    for part in components:
        if part.entity_type not in names:
            return False
        name = names[part.entity_type]
        if part.match_type == EXACT and name != part.name:
            return False
        if part.match_type == DEFAULT and name is not None:
            return False
    return True


def precedence(user: str, client_id: str) -> tuple[Entity, ...]:
    """The entities whose quota may apply to a client, by priority. The first one with a quota
    applies.
    """
    users: tuple[str | None, ...] = (user, None)
    clients: tuple[str | None, ...] = (client_id, None)
    found: list[Entity] = []
    for name in users:
        found += [((CLIENT_ID, client), (USER, name)) for client in clients]
        found.append(((USER, name),))
    found += [((CLIENT_ID, client),) for client in clients]
    return tuple(found)
