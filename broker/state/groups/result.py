"""What a group shard is given and what it answers: contexts, results, timers. Plain values, no
behaviour.

A result says everything that a step wants done. Nothing of it has happened until the runtime
appended its records and handed it to GroupShard.commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kstore.broker.state.linear_regex import LinearRegex
from kstore.config.group_configs import GROUP_CONFIGS

if TYPE_CHECKING:
    from kstore.broker.state.groups.contract import Group
    from kstore.broker.state.groups.positions import Report
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.protocol.schema import Message

__all__ = [
    "GroupContext",
    "GroupRecord",
    "GroupSettings",
    "HeartbeatExpired",
    "InitialRebalanceExpired",
    "JoinExpired",
    "RebalanceExpired",
    "RegexesDue",
    "Result",
    "SessionExpired",
    "StreamsDelayExpired",
    "SyncExpired",
    "TimerChange",
    "TimerEvent",
    "TimerKey",
    "Token",
    "heartbeat_key",
    "join_key",
    "sync_key",
]

Token: TypeAlias = object
"""Names a parked request; opaque here, the runtime finds the waiting connection by it."""

TimerKey: TypeAlias = tuple[str, ...]


class GroupSettings(NamedTuple):
    """The broker settings that groups obey, in Kafka's units and with Kafka's defaults."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    new_member_join_timeout_ms: int = 300_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    streams_max_size: int = 2_147_483_647
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    check_invariants: bool = False


def _default_group_config(group_id: str, name: str) -> Any:
    return GROUP_CONFIGS[name].default


def _matched(regex: str, image: MetadataImage) -> frozenset[str]:
    return LinearRegex(regex).filter(image.topics)


def _all_describable(
    group_id: str, regex: str, found: frozenset[str], known: frozenset[str]
) -> frozenset[str]:
    return found


class GroupContext(NamedTuple):
    """When, from whom and with what luck: all that a step may know beside state and request."""

    now_ms: int
    new_id: Callable[[], str]
    """A fresh random UUID's text for each call."""
    token: Token = None
    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    image: MetadataImage | None = None
    """Topics, their ids, partitions and racks as of now; to be read only."""
    group_config: Callable[[str, str], Any] = _default_group_config
    """``group_config(group_id, name)``: a setting of a group (config resource GROUP), the broker's
    where it has none of its own.
    """
    matched: Callable[[str, MetadataImage], frozenset[str]] = _matched
    """``matched(regex, image)``: the topics that a regular expression matches."""
    describable: Callable[[str, str, frozenset[str], frozenset[str]], frozenset[str]] = (
        _all_describable
    )
    """``describable(group_id, regex, found, known)``: those of the topics that a regular expression
    matched which who subscribed with it may describe; ``known`` are those of the last time.
    """

    @property
    def topics(self) -> MetadataImage:
        """The image, for steps that are always given one."""
        assert self.image is not None, "a step that needs the topics was given none"
        return self.image


class HeartbeatExpired(NamedTuple):
    """The member was not heard of for its session timeout."""

    group_id: str
    member_id: str


class InitialRebalanceExpired(NamedTuple):
    """A new group's delay is over; for ``remaining_ms`` more members may be waited for."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: go on with the members that joined."""

    group_id: str


class SyncExpired(NamedTuple):
    """The rebalance timeout is over for members of ``generation_id`` that did not sync."""

    group_id: str
    generation_id: int


class SessionExpired(NamedTuple):
    """A member of a consumer or streams group was not heard of for its session timeout."""

    group_id: str
    member_id: str


class RebalanceExpired(NamedTuple):
    """A member of a consumer group did not give up its partitions in time, or, a classic one, did
    not join or sync in time. It matters only in ``member_epoch``, if that is not -1.
    """

    group_id: str
    member_id: str
    member_epoch: int = -1


class RegexesDue(NamedTuple):
    """A consumer group's regular expressions are to be resolved."""

    group_id: str


class StreamsDelayExpired(NamedTuple):
    """The initial rebalance delay of a streams group is over."""

    group_id: str


TimerEvent: TypeAlias = (
    HeartbeatExpired
    | InitialRebalanceExpired
    | JoinExpired
    | SyncExpired
    | SessionExpired
    | RebalanceExpired
    | RegexesDue
    | StreamsDelayExpired
)


class TimerChange(NamedTuple):
    """Set the timer ``key`` to fire ``event`` after ``delay_ms``, replacing it; cancel it if there
    is no event.
    """

    key: TimerKey
    delay_ms: int
    event: TimerEvent | None
    only_if_absent: bool = False
    """Leave a timer of this key that is set already."""


class GroupRecord(NamedTuple):
    """A record for __consumer_offsets: typed key, typed value (None deletes), and the value's
    version.
    """

    key: Message
    value: Message | None
    value_version: int = 0


class Result(NamedTuple):
    """What a step decided. ``response`` None means that the asker is parked until a completion
    names its token.
    """

    response: Message | None = None
    records: tuple[GroupRecord, ...] = ()
    completions: tuple[tuple[Token, Message], ...] = ()
    timers: tuple[TimerChange, ...] = ()
    groups: tuple[Group, ...] = ()
    """The successors of the groups that changed; they replace the live ones after the append."""
    producer: tuple[int, int] | None = None
    """The producer id and epoch in whose transaction the records are written."""
    marks: tuple[tuple[str, str, Any], ...] = ()
    """Soft state that no record holds: (group id, attribute, value), set after the append."""
    reports: tuple[str, dict[str, Report]] | None = None
    """What a group's members say of their positions (KIP-253), from now on."""


def heartbeat_key(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return ("heartbeat", group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """The timer of a group's join phase."""
    return ("join", group_id)


def sync_key(group_id: str) -> TimerKey:
    """The timer of a group's sync phase."""
    return ("sync", group_id)
