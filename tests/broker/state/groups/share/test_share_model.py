"""Random histories of a share group: members that come, lose answers, change their topics, fall
silent and leave, while topics grow and go, the share coordinator fails, administrators alter and
delete offsets, and the group coordinator restarts.

The driver checks the group's invariants after every step. Here the assignments of clients are
compared with what was initialized, and the group must become stable.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.groups.timers import ShareStatesDeleted
from kstore.errors import ErrorCode
from tests.broker.state.groups.share.share_driver import ShareDriver
from tests.plain_messages import Ask

CLIENTS = ("a", "b", "c", "d")
TOPICS = ("t", "u")
SUBSCRIPTIONS = (["t"], ["u"], ["t", "u"], ["t", "u", "none"])
SESSION_MS = 45_000
FENCED = {
    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND,
}  # fmt: skip
clients = st.sampled_from(CLIENTS)


class Histories(RuleBasedStateMachine):
    """One group, four clients, two topics."""

    @initialize(interval=st.sampled_from([0, 1000]))
    def start(self, interval: int) -> None:
        self.driver = ShareDriver()
        self.driver.group_configs["share.assignment.interval.ms"] = interval
        self.epochs = dict.fromkeys(CLIENTS, 0)
        self.wanted: dict[str, list[str]] = {name: ["t"] for name in CLIENTS}
        self.counts = {"t": 2}
        self.driver.topic("t", 2)

    def group(self) -> ShareGroup | None:
        return self.driver.shard.groups.get("g")

    def send(self, name: str, *, lost: bool, changed: bool = False) -> None:
        """A heartbeat; a client follows the answer, if it comes."""
        epoch = self.epochs[name]
        names = self.wanted[name] if changed or not epoch else None
        answer = self.driver.beat(name, epoch, subscribed_topic_names=names)
        assert answer.error_code in FENCED | {0}, answer
        if answer.error_code:
            assert epoch, "who joins is never fenced"
            self.epochs[name] = 0
        elif not lost:
            self.epochs[name] = answer.member_epoch

    @rule(name=clients, lost=st.booleans())
    def beat(self, name: str, lost: bool) -> None:
        """A member joins or stays; its answer may be lost."""
        self.send(name, lost=lost)

    @rule(name=clients, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, name: str, topics: list[str]) -> None:
        self.wanted[name] = topics
        self.send(name, lost=False, changed=True)

    @rule(name=clients)
    def leave(self, name: str) -> None:
        self.driver.beat(name, -1)
        self.epochs[name] = 0

    @rule(ms=st.sampled_from([100, 2000, SESSION_MS]))
    def wait(self, ms: int) -> None:
        """Time passes; members that are silent for too long are removed."""
        self.driver.advance(ms)

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.counts[topic] = self.counts.get(topic, 0) + 1
        self.driver.topic(topic, self.counts[topic])

    @rule(topic=st.sampled_from(TOPICS))
    def drop(self, topic: str) -> None:
        if self.counts.pop(topic, 0):
            self.driver.image = self.driver.image.without_topics(topic)
            for result in self.driver.shard.forget_topic(topic):
                self.driver.take(result)

    @rule(failed=st.frozensets(st.integers(0, 3)))
    def initialized(self, failed: frozenset[int]) -> None:
        """The share coordinator answers."""
        if self.group() is not None:
            self.driver.initialized(failed=failed)

    @rule(topic=st.sampled_from(TOPICS), fails=st.booleans())
    def delete_offsets(self, topic: str, fails: bool) -> None:
        """An administrator deletes a topic's offsets, if the group has no members."""
        rows = [{"topic_name": topic}]
        self.driver.send(Ask.DeleteShareGroupOffsets(group_id="g", topics=rows))
        group = self.group()
        if group is not None and group.deletions:
            tried = group.deletions
            event = ShareStatesDeleted("g", tried, frozenset() if fails else tried)
            self.driver.tell(event)

    @rule()
    def restart(self) -> None:
        """Another coordinator takes the group over."""
        self.driver.restart()

    @invariant()
    def a_restart_would_find_the_same(self) -> None:
        """What is in the log is what the group is."""
        group = self.group()
        if group is None:
            return
        fields = set(ShareGroup.__slots__) - {"seen_image_version", "deletions"}
        before = {name: getattr(group, name) for name in fields}
        shadow = ShareDriver()
        shadow.log = list(self.driver.log)
        shadow.image = self.driver.image
        shadow.restart()
        after = shadow.shard.groups["g"]
        assert before == {name: getattr(after, name) for name in fields}

    def teardown(self) -> None:
        """Without failures, each partition is shared by members that subscribe to it."""
        if not hasattr(self, "driver"):
            return
        for _ in range(6):
            for name in CLIENTS:
                self.send(name, lost=False, changed=True)
            self.driver.initialized()
            self.driver.advance(1000)
        group = self.driver.group
        assert group.members.keys() == set(CLIENTS)
        topics = {topic.topic_id: name for name, topic in self.driver.image.topics.items()}
        held: dict[tuple[str, int], int] = {}
        for member in group.members.values():
            assert member.epoch == group.epoch == group.assignment_epoch
            for topic_id, partitions in member.assigned.items():
                assert topics[topic_id] in member.topics
                for partition in partitions:
                    place = (topics[topic_id], partition)
                    held[place] = held.get(place, 0) + 1
        named = {topic for member in group.members.values() for topic in member.topics}
        assert held.keys() == {
            (name, index)
            for name, count in self.counts.items() if name in named
            for index in range(count)
        }  # fmt: skip


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
