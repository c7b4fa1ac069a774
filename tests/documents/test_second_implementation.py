"""A producer and a consumer in Go, written from docs/protocol-extensions.md and
docs/protocol-bytes.md, use KIP-359, KIP-391 and KIP-232 with real kstore brokers, one of which is
cut off from the others where that is what a document is about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kstore.errors import ErrorCode
from tests.beside.programs import Dialogue
from tests.beside.waiting import until
from tests.conformance.go_programs import build
from tests.documents.cut_off import CutOffCluster, write
from tests.documents.cut_off import cluster as cluster  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]


class Client(Dialogue):
    """The Go program; `events` is its output about the last command before the result."""

    def __init__(self, program: Path, bootstrap: str) -> None:
        super().__init__([str(program), bootstrap])
        self.events: list[dict[str, Any]] = []

    def begin(self, do: str, **fields: Any) -> None:
        """Give a command; `result` waits for its result."""
        self.events = []
        self.tell(json.dumps({"do": do} | fields))

    def wait_for(self, **event: Any) -> None:
        """Read until the running command says this."""
        while True:
            line = json.loads(self.line())
            assert "event" in line, f"ended before {event}: {line}"
            self.events.append(line)
            if event.items() <= line.items():
                return

    def result(self) -> Any:
        """The result of the command; AssertionError, with its words, if it failed."""
        while "event" in (line := json.loads(self.line())):
            self.events.append(line)
        assert "error" not in line, line["error"]
        return line["result"]

    def run(self, do: str, **fields: Any) -> Any:
        self.begin(do, **fields)
        return self.result()

    def answers(self) -> list[tuple[int, int]]:
        """(broker, code) of each answer to the last Produce."""
        rows = [event for event in self.events if event["event"] == "answer"]
        return [(row["broker"], row["code"]) for row in rows]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("./extensions", tmp_path_factory.mktemp("go"))


def written(program: Path, cluster: CutOffCluster, topic: str) -> list[tuple[int, str]]:
    """(offset, value) of what the Go consumer reads of a topic from its start on."""
    with Client(program, cluster.bootstrap) as client:
        client.run("seek", topic=topic, offset=0)
        return [(row["offset"], row["value"]) for row in client.run("poll", topic=topic)["records"]]


# ---- KIP-359 ----


def test_a_producer_that_missed_elections_is_fenced_and_takes_the_leader_from_the_answer(
    program: Path, cluster: CutOffCluster
) -> None:
    leader, other, third = cluster.victim()
    topic = cluster.new_topic(leader, other, third)
    with Client(program, cluster.bootstrap) as client:
        client.run("produce", topic=topic, values=["before"])
        assert client.answers() == [(leader, ErrorCode.NONE)]
        cluster.lead(topic, other, asked=other)
        cluster.lead(topic, leader, asked=other)
        until(cluster.is_same_everywhere, "all brokers know the leader")
        client.run("produce", topic=topic, values=["after"])
        assert client.answers() == [(leader, ErrorCode.FENCED_LEADER_EPOCH), (leader, 0)]
        assert not [event for event in client.events if event["event"] == "metadata"]
    assert written(program, cluster, topic) == [(0, "before"), (1, "after")]


def test_a_leader_that_does_not_know_its_own_epoch_takes_nothing(
    program: Path, cluster: CutOffCluster
) -> None:
    """Two elections that the old leader, which is cut off, does not know about; then another broker
    leads.
    """
    old, first, second = cluster.victim()
    topic = cluster.new_topic(old, first, second)
    with Client(program, cluster.brokers[first].bootstrap) as client:
        with cluster.cut_off(old):
            cluster.lead(topic, first, asked=first)
            cluster.lead(topic, old, asked=first)
            client.begin("produce", topic=topic, values=["record"])
            client.wait_for(event="answer", broker=old, code=ErrorCode.UNKNOWN_LEADER_EPOCH)
            cluster.lead(topic, first, asked=first)
        assert client.result()["offset"] == 0
        codes = dict.fromkeys(client.answers())
        assert next(reversed(codes)) == (first, ErrorCode.NONE)
        assert (old, ErrorCode.NONE) not in codes
    assert written(program, cluster, topic) == [(0, "record")]


# ---- KIP-391 ----


def test_given_offsets_and_their_refusals(program: Path, cluster: CutOffCluster) -> None:
    topic = cluster.new_topic(1, 2, 3)
    with Client(program, cluster.bootstrap) as client:

        def give(offset: int | None, *values: str, **more: Any) -> tuple[int, int, int]:
            fields = {} if offset is None else {"offset": offset}
            got = client.run("produce", topic=topic, values=values, **fields, **more)
            return got["code"], got["offset"], got["log_end_offset"]

        assert give(5, "a", "b") == (0, 5, 7)
        assert give(100, "c") == (0, 100, 101)
        assert give(100, "x") == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 101)
        assert give(0, "x", "y") == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 101)
        assert give(200, "x", gap=True) == (ErrorCode.CORRUPT_MESSAGE, -1, 101)
        assert give(-1, "x") == (ErrorCode.CORRUPT_MESSAGE, -1, 101)
        assert give(None, "d") == (0, 101, -1)
        client.run("producer id")
        assert give(110, "e", "f") == (0, 110, 112)
        assert give(120, "g") == (0, 120, 121)
        assert give(110, "e", "f", sequence=0) == (0, 110, 121), "a duplicate"
        assert give(115, "e", "f", sequence=0) == (0, 110, 121), "with the offset that it has"
        assert give(112, "x", sequence=7) == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 121)
        assert give(130, "x", sequence=7) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 121)
    assert written(program, cluster, topic) == [
        (5, "a"), (6, "b"), (100, "c"), (101, "d"), (110, "e"), (111, "f"), (120, "g")
    ]  # fmt: skip


def test_a_copier_that_starts_again_goes_on_where_the_refusal_says(
    program: Path, cluster: CutOffCluster
) -> None:
    topic = cluster.new_topic(1, 2, 3)
    source = [{"offset": at, "value": f"v{at}"} for at in (0, 1, 3, 4, 9)]
    for records, refused in ((source[:3], 0), (source, 1), (source, 1)):
        with Client(program, cluster.bootstrap) as client:
            assert client.run("copy", topic=topic, records=records) == {"refused": refused}
    assert written(program, cluster, topic) == [(row["offset"], row["value"]) for row in source]


# ---- KIP-232 ----


def create_again(cluster: CutOffCluster, topic: str, replicas: list[int], asked: int) -> None:
    """Delete a topic, and create another one of that name."""
    from kstore.clients import NewTopic

    with cluster.admin(asked) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, replicas={0: replicas})])
    until(lambda: cluster.leader(topic, 0, asked) == replicas[0], f"{topic} is there again")


def test_a_topic_that_is_deleted_and_created_again_is_another_one(
    program: Path, cluster: CutOffCluster
) -> None:
    _, leader, other = cluster.victim()
    topic, group = cluster.new_topic(leader, other), f"g{uuid4().hex}"
    write(cluster, leader, topic, b"old-0", b"old-1", b"old-2")
    with Client(program, cluster.brokers[leader].bootstrap) as client:
        first = client.run("seek", topic=topic, offset=0)["partition_epoch"]
        assert len(client.run("poll", topic=topic)["records"]) == 3
        client.run("commit", group=group, topic=topic)
        create_again(cluster, topic, [leader, other], leader)
        write(cluster, leader, topic, *(b"new-%d" % number for number in range(5)))
        assert client.run("poll", topic=topic) == {"records": None, "other_life": True}
        with pytest.raises(AssertionError, match=f"error {ErrorCode.INVALID_PARTITION_EPOCH}"):
            client.run("commit", group=group, topic=topic)
        second = client.run("seek", topic=topic, offset=0)["partition_epoch"]
        assert second > first
        records = client.run("poll", topic=topic)["records"]
        assert [row["value"] for row in records] == [f"new-{number}" for number in range(5)]
        client.run("commit", group=group, topic=topic, offset=4)
        found = client.run("start", group=group, topic=topic)
        assert (found["offset"], found["partition_epoch"]) == (4, second)
        assert found["deleted"] is False


def test_a_commit_of_an_older_leader_is_refused(program: Path, cluster: CutOffCluster) -> None:
    _, leader, other = cluster.victim()
    topic, group = cluster.new_topic(leader, other), f"g{uuid4().hex}"
    with Client(program, cluster.bootstrap) as client:
        client.run("seek", topic=topic, offset=0)
        client.run("commit", group=group, topic=topic, offset=7, leader_epoch=3)
        with pytest.raises(AssertionError, match=f"error {ErrorCode.INVALID_LEADER_EPOCH}"):
            client.run("commit", group=group, topic=topic, offset=8, leader_epoch=2)
        client.run("commit", group=group, topic=topic, offset=9, leader_epoch=-1)
        assert client.run("start", group=group, topic=topic)["offset"] == 9


def test_metadata_of_a_broker_that_is_behind_is_not_used(
    program: Path, cluster: CutOffCluster
) -> None:
    """The outdated broker returns the deleted topic. A client that knows better asks another
    broker. One that does not learns it from an unknown topic id, or from the group's commit.
    """
    behind, leader, other = cluster.victim()
    topic, group = cluster.new_topic(leader, other), f"g{uuid4().hex}"
    old, new = cluster.brokers[behind].bootstrap, cluster.brokers[leader].bootstrap
    write(cluster, leader, topic, b"old-0", b"old-1")
    with Client(program, new) as knowing, Client(program, f"{old},{new}") as bootstrapping:
        knowing.run("seek", topic=topic, offset=0)
        with cluster.cut_off(behind):
            create_again(cluster, topic, [leader, other], leader)
            write(cluster, leader, topic, b"new-0")
            epoch = knowing.run("seek", topic=topic, offset=0)["partition_epoch"]
            assert knowing.run("poll", topic=topic)["records"][0]["value"] == "new-0"
            knowing.run("commit", group=group, topic=topic)
            knowing.run("seeds", seeds=f"{old},{new}")
            assert knowing.run("metadata", topic=topic)["partition_epoch"] == epoch
            assert knowing.events == [{"event": "metadata", "from": old, "why": "old"}]
            found = bootstrapping.run("start", group=group, topic=topic)
            assert (found["offset"], found["partition_epoch"]) == (1, epoch)
            assert bootstrapping.events[0] == {
                "event": "committed", "code": ErrorCode.UNKNOWN_TOPIC_ID
            }  # fmt: skip
            write(cluster, leader, topic, b"new-1")
            records = bootstrapping.run("poll", topic=topic)["records"]
            assert records == [{"offset": 1, "value": "new-1"}]
