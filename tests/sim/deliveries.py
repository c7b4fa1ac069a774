"""What the members of a share group received, and the answers that they got. The rules of share
groups are checked from that alone, without asking brokers.

Members cannot know when a broker acquired a record for them, only that it was between their request
and its answer. Each rule is so weak that no delay of an answer breaks it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tests.sim.history import History, Place

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
FINAL = (ACCEPT, REJECT)


class Hold:
    """One delivery of one record to one member."""

    __slots__ = ("count", "lock_s", "member", "offset", "place", "received_at", "sent_at", "until")

    def __init__(
        self, place: Place, offset: int, count: int, member: str, times: tuple[float, float, float]
    ) -> None:
        """``times``: when it was requested, when it arrived, and how long a lock lasts."""
        self.place = place
        self.offset = offset
        self.count = count
        self.member = member
        self.sent_at, self.received_at, self.lock_s = times
        self.until = self.sent_at + self.lock_s


class _Fate(NamedTuple):
    """The final state of a record."""

    heard_at: float
    how: str


class Deliveries:
    """The deliveries of one share group."""

    def __init__(self, history: History, topic: str, limit: int) -> None:
        """``limit``: how often a record may be delivered."""
        self._history = history
        self._topic = topic
        self._limit = limit
        self._holds: dict[tuple[Place, int], list[Hold]] = defaultdict(list)
        self._fates: dict[tuple[Place, int], _Fate] = {}
        self._perhaps: set[tuple[Place, int]] = set()
        self._released: dict[tuple[Place, int], list[tuple[float, int]]] = defaultdict(list)
        self._unanswered: dict[Place, int] = defaultdict(int)

    # ---- deliveries ----

    def delivered(self, hold: Hold) -> None:
        """A member received a record."""
        history, key = self._history, (hold.place, hold.offset)
        history.counts["deliveries"] += 1
        if hold.count > self._limit:
            history.break_rule(
                "delivery_count", f"{_name(hold)} is delivered for the {hold.count}. time"
            )
        before = [count for at, count in self._released[key] if at < hold.sent_at]
        if before and hold.count <= max(before):
            history.break_rule(
                "delivery_count",
                f"{_name(hold)} is delivery {hold.count}, and {max(before)} was released before",
            )
        self._after_its_fate(hold, hold.sent_at, "is delivered")
        self._holds[key].append(hold)

    def not_answered(self, places: Iterable[Place]) -> None:
        """A fetch was not answered: it may have delivered each record once more."""
        for place in places:
            self._unanswered[place] += 1

    # ---- acknowledgements ----

    def kept(
        self, holds: Iterable[tuple[Hold, int]], sent_at: float, heard_at: float, *, led: bool
    ) -> None:
        """A member's acknowledgements were accepted, and it knows that. ``led``: the broker led the
        partition in one epoch all the time, and the connection of the delivery still exists.

        A late acknowledgement proves nothing: offsets that are then below the start offset are
        ignored.
        """
        for hold, kind in holds:
            key = (hold.place, hold.offset)
            self._history.counts["acknowledgements"] += 1
            if not led or heard_at >= hold.until:
                self.perhaps_kept([(hold, kind)])
                continue
            self._one_holder(hold, sent_at)
            self._after_its_fate(hold, sent_at, "is acknowledged")
            if kind in FINAL:
                if key in self._fates:
                    self._history.break_rule("accepted_once", f"{_name(hold)} was accepted by two")
                self._fates[key] = _Fate(heard_at, f"by {hold.member}")
            elif kind == RELEASE:
                self._released[key].append((heard_at, hold.count))
            elif kind == RENEW:
                hold.until = sent_at + hold.lock_s

    def perhaps_kept(self, holds: Iterable[tuple[Hold, int]]) -> None:
        """The acknowledgements of a member may have been accepted or not."""
        for hold, kind in holds:
            if kind in FINAL:
                self._perhaps.add((hold.place, hold.offset))

    def not_held(self, holds: Iterable[Hold], heard_at: float) -> None:
        """A broker said that a member does not hold all of these; ``led`` (see above) is true."""
        rows = list(holds)
        if rows and all(heard_at < hold.until for hold in rows):
            self._history.break_rule(
                "one_holder",
                f"{_name(rows[0])} to {rows[-1].offset} is not {rows[0].member}'s any more, "
                f"{rows[0].until - heard_at:.3f} s before its lock ends",
            )

    def _one_holder(self, hold: Hold, sent_at: float) -> None:
        """The member held it from the response until now, so no other member did in between."""
        for other in self._holds[hold.place, hold.offset]:
            if (
                other is not hold
                and other.sent_at > hold.received_at
                and other.received_at < sent_at
            ):
                self._history.break_rule(
                    "one_holder",
                    f"{_name(hold)} was {hold.member}'s and given to {other.member} meanwhile",
                )

    def _after_its_fate(self, hold: Hold, sent_at: float, what: str) -> None:
        fate = self._fates.get((hold.place, hold.offset))
        if fate is not None and fate.heard_at < sent_at:
            self._history.break_rule(
                "accepted_once", f"{_name(hold)} {what}, and was accepted {fate.how} before"
            )

    # ---- the end ----

    @property
    def ended(self) -> int:
        """How many records were accepted or rejected, or may have been."""
        return len(self._fates.keys() | self._perhaps)

    def missing(self) -> list[tuple[Place, int]]:
        """Records that producers got acknowledged but whose outcome is unknown: no member has
        accepted or rejected them, and they cannot have been delivered as often as allowed.
        """
        return [
            (place, offset)
            for place, values in sorted(self._history.acknowledged.items())
            if place.topic == self._topic
            for offset in sorted(values)
            if self._is_open(place, offset)
        ]

    def _is_open(self, place: Place, offset: int) -> bool:
        key = (place, offset)
        if key in self._fates or key in self._perhaps:
            return False
        holds = self._holds.get(key, ())
        return len(holds) + self._unanswered[place] < self._limit

    def check(self) -> None:
        """No record is missing at the end."""
        for place, offset in self.missing():
            self._history.break_rule(
                "share_lost",
                f"{place.topic}-{place.partition} offset {offset} was delivered "
                f"{len(self._holds.get((place, offset), ()))} times, and comes no more",
            )


def _name(hold: Hold) -> str:
    return f"{hold.place.topic}-{hold.place.partition} offset {hold.offset}"
