"""Fetches of followers while a producer has several large batches in flight: batches that arrive
together are sent together. A follower that waits for more in vain waits only briefly, and less and
less often.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.broker.replica_state import ReplicaState
from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, ManualLoop, Plane, Timer
from tests.record_requests import fetch_part, fetch_request, only, produce_request

NEAR, FAR = 6, 7
REPLICAS = (NODE_ID, NEAR, FAR)
EPOCH = 3
WINDOW = 5
LARGE, SMALL = 16_000, 100
MOMENT_MS = 4


class Clock(ManualLoop):
    """Timers run out one after another."""

    def wait(self, ms: int) -> None:
        end = self.now_ms + ms
        while due := [each for each in self.timers if not each.cancelled and each.due_ms <= end]:
            timer: Timer = min(due, key=lambda each: each.due_ms)
            self.timers.remove(timer)
            self.now_ms = max(self.now_ms, timer.due_ms)
            timer.callback(*timer.args)
            self.turn()
        self.now_ms = end


class Follower:
    """A broker that copies partitions 0 and 1; it has always one fetch under way."""

    def __init__(self, plane: Plane, node_id: int) -> None:
        self.node_id = node_id
        self.client = plane.client()
        self.ends = [0, 0]
        self.session_id = self.session_epoch = 0
        self.steps: list[int] = []
        """How many batches each answer had."""
        self._fetch([0, 1], 0)
        self.take()

    def _fetch(self, partitions: list[int], max_wait_ms: int = 500) -> None:
        parts = [fetch_part(self.ends[i], i, current_leader_epoch=EPOCH) for i in partitions]
        self.client.send(
            17, fetch_request(
                TOPIC_ID, *parts, node=self.node_id, max_wait_ms=max_wait_ms,
                session_id=self.session_id, session_epoch=self.session_epoch,
            ),
        )  # fmt: skip

    def take(self) -> list[int]:
        """The error codes of an answer that has arrived; then the next fetch is sent."""
        errors = []
        for _, answer in self.client.answers():
            self.session_id = answer.session_id
            self.session_epoch += 1
            grown = []
            for part in (part for topic in answer.responses for part in topic.partitions):
                errors.append(part.error_code)
                if part.records:
                    batches = batches_of(bytes(part.records))
                    self.steps.append(len(batches))
                    self.ends[part.partition_index] += len(batches)
                    grown.append(part.partition_index)
            self._fetch(grown)
        return errors


def batches_of(data: bytes) -> list[bytes]:
    """Each of one record."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:size])
        data = data[size:]
    return found


class Scene:
    """A leader, its followers and a producer's connection."""

    def __init__(self, plane: Plane) -> None:
        plane.loop.__class__ = Clock
        self.plane = plane
        for index in range(2):
            plane.partition(index).lead(EPOCH, 1, REPLICAS, REPLICAS)
        self.followers = [Follower(plane, node_id) for node_id in (NEAR, FAR)]
        self.producer = plane.client()
        self.acknowledged = 0

    @property
    def state(self) -> ReplicaState:
        state = self.plane.partition().replication
        assert state is not None
        return state

    def send(
        self, size: int = LARGE, index: int = 0, client: Client | None = None, count: int = 1
    ) -> None:
        """Requests with one batch of one record arrive, in one turn of the loop."""
        client = client or self.producer
        batch = build_batch([bytes(size)], timestamp=1)
        asked = produce_request("t", batch, first=index, acks=-1)
        client.feed(b"".join(client.frame(9, asked) for _ in range(count)))
        self.plane.loop.turn()

    def go_round(self) -> None:
        """What can be answered is, until all wait; no time passes."""
        while sum(len(follower.take()) for follower in self.followers):
            self.plane.loop.turn()
        self.acknowledged += len(self.producer.answers())

    def window(self, count: int = WINDOW, size: int = LARGE) -> None:
        """A producer sends this many batches at once and gets its answers."""
        self.send(size, count=count)
        self.go_round()

    def steps(self) -> list[list[int]]:
        """How many batches the answers of each follower had since the last call."""
        found = [follower.steps for follower in self.followers]
        for follower in self.followers:
            follower.steps = []
        return found


@pytest.fixture
def scene(plane: Plane) -> Scene:
    scene = Scene(plane)
    scene.window()
    assert scene.acknowledged == WINDOW
    scene.steps()
    return scene


def test_the_window_that_a_producer_had_is_sent_to_followers_in_one_step(scene: Scene) -> None:
    for _ in range(3):
        for number in range(WINDOW):
            assert scene.acknowledged % WINDOW == 0, number
            scene.send()
            scene.go_round()
        assert scene.steps() == [[WINDOW], [WINDOW]]
    assert scene.acknowledged == 4 * WINDOW
    assert scene.state.passes == 0


def test_without_pipelined_requests_every_batch_is_sent_at_once(plane: Plane) -> None:
    scene = Scene(plane)
    others = [plane.client() for _ in range(WINDOW)]
    for _ in range(3):
        for client in others:
            scene.send(client=client)
        scene.go_round()
        assert all(client.answers() for client in others)
    scene.steps()
    scene.send()
    scene.go_round()
    assert scene.steps() == [[1], [1]]
    assert scene.acknowledged == 1


def test_a_small_record_is_sent_at_once(scene: Scene) -> None:
    scene.send(SMALL)
    scene.go_round()
    assert scene.steps() == [[1], [1]]
    assert scene.acknowledged == WINDOW + 1


def test_news_of_another_partition_takes_along_what_was_gathered(scene: Scene) -> None:
    scene.send()
    scene.send()
    scene.go_round()
    assert scene.steps() == [[], []]
    scene.send(SMALL, 1, scene.plane.client())
    scene.go_round()
    assert [sorted(steps) for steps in scene.steps()] == [[1, 2], [1, 2]]
    assert scene.acknowledged == WINDOW + 2


def test_what_does_not_come_is_waited_for_only_for_a_moment(scene: Scene) -> None:
    scene.send()
    scene.go_round()
    assert scene.acknowledged == WINDOW
    scene.plane.loop.wait(MOMENT_MS)  # type: ignore[attr-defined]
    scene.go_round()
    assert scene.steps() == [[1], [1]]
    assert scene.acknowledged == WINDOW + 1
    assert scene.state.most_waiting == 1
    assert scene.state.passes > 0


def test_a_producer_that_sends_now_more_now_less_hardly_waits(scene: Scene) -> None:
    waited = 0
    rounds = 200
    for _ in range(rounds):
        scene.window(WINDOW)
        before = scene.acknowledged
        scene.window(2)
        if scene.acknowledged == before:
            waited += 1
            scene.plane.loop.wait(MOMENT_MS)  # type: ignore[attr-defined]
            scene.go_round()
        assert scene.acknowledged == before + 2
    assert 1 <= waited <= 7


def test_who_gathers_hears_at_once_that_this_broker_leads_no_more(scene: Scene) -> None:
    scene.send()
    scene.plane.partition().follow(FAR, EPOCH + 1)
    scene.plane.loop.turn()
    for follower in scene.followers:
        [(_, answer)] = follower.client.answers()
        assert only(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_gathers_under_a_new_epoch_is_fenced_at_once(scene: Scene) -> None:
    scene.send()
    scene.plane.partition().lead(EPOCH + 1, 2, REPLICAS, REPLICAS)
    scene.plane.loop.turn()
    for follower in scene.followers:
        [(_, answer)] = follower.client.answers()
        assert only(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH


sends = st.tuples(st.sampled_from([SMALL, 5_000, LARGE]), st.integers(0, 1), st.integers(0, 7))


@settings(max_examples=20)
@given(runs=st.lists(st.lists(sends, min_size=1, max_size=8), max_size=10))
def test_all_that_is_sent_is_acknowledged_within_a_moment(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[tuple[int, int, int]]]
) -> None:
    plane = Plane(tmp_path_factory.mktemp("log"))
    scene = Scene(plane)
    sent = 0
    for run in runs:
        for size, index, pause_ms in run:
            scene.send(size, index)
            sent += 1
            plane.loop.wait(pause_ms)  # type: ignore[attr-defined]
            scene.go_round()
        plane.loop.wait(MOMENT_MS)  # type: ignore[attr-defined]
        scene.go_round()
        assert scene.acknowledged == sent
    plane.close()
