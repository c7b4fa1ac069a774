"""The group protocol of a consumer: what its settings choose, and when a member falls back to the
classic protocol; and the creation of members.

Without group.protocol a consumer uses the consumer protocol (KIP-848) if the coordinator supports
it, else the classic one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kstore.clients.core.group.group_step import MemberSettings
from kstore.config.definition import ConfigError
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.clients.core.group.classic_member import ClassicMember
    from kstore.clients.core.group.consumer_member import ConsumerMember

__all__ = ["FIRST_VERSION", "Member", "falls_back", "is_to_be_chosen", "make_member"]

Member: TypeAlias = "ClassicMember | ConsumerMember"

FIRST_VERSION = 1
"""The version of ConsumerGroupHeartbeat in Kafka 4.0. Earlier brokers had version 0 as a
preview.
"""

ONLY_CLASSIC = ("heartbeat.interval.ms", "partition.assignment.strategy", "session.timeout.ms")
ONLY_CONSUMER = ("group.remote.assignor",)
IMPLY_CLASSIC = frozenset({*ONLY_CLASSIC, "group.instance.id"})
"""Settings that select the classic protocol if group.protocol is not set. A static member that
crashed can take its old place at once only with the classic protocol.
"""
_NOT_HERE = frozenset({
    ErrorCode.UNSUPPORTED_VERSION,  # the broker has the protocol disabled
    ErrorCode.GROUP_ID_NOT_FOUND,  # a classic group that may not be converted
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
})  # fmt: skip


def is_to_be_chosen(given: frozenset[str]) -> bool:
    """Whether the broker decides on the protocol. ``given`` are the names of the settings that were
    set.
    """
    return not given & ({"group.protocol", *ONLY_CONSUMER} | IMPLY_CLASSIC)


def falls_back(code: int, member: Member) -> bool:
    """Whether an error of a heartbeat means that this group does not use the consumer protocol.
    Only a member that is about to join may change to the other one.
    """
    from kstore.clients.core.group.consumer_member import ConsumerMember

    may_change = isinstance(member, ConsumerMember) and not member.owned and member.is_fresh
    return code in _NOT_HERE and may_change


def make_member(
    settings: Mapping[str, Any],
    given: frozenset[str],
    member_id: str,
    chance: Callable[[], float],
    *,
    is_classic: bool = False,
) -> Member:
    """A member for the protocol of the settings, or for the classic one if requested.

    Raises ConfigError for an unknown assignor, and for settings of the other protocol.
    """
    own = MemberSettings(
        group_id=settings["group.id"],
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        max_poll_interval_ms=settings["max.poll.interval.ms"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        retry_backoff_max_ms=settings["retry.backoff.max.ms"],
        server_assignor=settings["group.remote.assignor"],
    )
    wished = _wished_protocol(settings, given)
    if wished == "consumer" and not is_classic:
        from kstore.clients.core.group.consumer_member import ConsumerMember

        return ConsumerMember(own, member_id, chance)
    from kstore.clients.core.group.assignor_table import make_assignor
    from kstore.clients.core.group.classic_member import ClassicMember

    assignors = [make_assignor(item) for item in settings["partition.assignment.strategy"]]
    return ClassicMember(own, assignors, chance)


def _wished_protocol(settings: Mapping[str, Any], given: frozenset[str]) -> str:
    wished: str = settings["group.protocol"].lower()
    if "group.protocol" not in given and not given.intersection(ONLY_CONSUMER):
        return "classic" if given & IMPLY_CLASSIC else wished
    others = ONLY_CLASSIC if wished == "consumer" else ONLY_CONSUMER
    for name in others:
        if name in given:
            other = "classic" if wished == "consumer" else "consumer"
            raise ConfigError(
                f"{name} is a setting of group.protocol={other}, and this consumer's is {wished}: "
                f"remove one of the two",
                key=name,
            )
    return wished
