"""The pages of the console against a real broker: what they show, and what their forms change."""

from __future__ import annotations

import contextlib
import json
import re
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from kstore.clients import (
    AdminClient,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from kstore.clients.core.consumer.offset_epoch import encode
from kstore.console.app import console_app
from kstore.console.cluster.admin import ConsoleAdmin
from kstore.console.cluster.settings import ConsoleSettings
from kstore.testing import Broker
from tests.broker.groups.test_streams_groups import Line
from tests.clients.schema_registry import SchemaRegistry
from tests.console.conftest import URL, Visitor
from tests.reference.streams_members import StreamsClient, subtopology, topology

PAGES = (
    "/", "/ui/brokers/1", "/ui/topics", "/ui/groups", "/ui/transactions", "/ui/acls", "/ui/users",
    "/ui/configs", "/ui/configs/broker/1", "/ui/configs/broker/all", "/ui/configs/broker-logger/1",
    "/ui/quotas", "/ui/history",
)  # fmt: skip


def offsets(html: str) -> list[tuple[int, int]]:
    """(partition, offset) of the records on a page."""
    rows = re.findall(r'<tr><td class="n">(\d+)</td><td class="n">(\d+)</td>', html)
    return [(int(partition), int(offset)) for partition, offset in rows]


def fill(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    """A new topic with records 0 and on, round the partitions."""
    with AdminClient(broker.address) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(count):
            producer.send(
                topic, b"value %d" % number, b"key-%d" % (number % 5),
                partition=number % partitions, timestamp=1_700_000_000_000 + number * 1000,
            )  # fmt: skip


def test_every_page_is_there_and_forbids_frames_and_foreign_scripts(visitor: Visitor) -> None:
    for path in PAGES:
        answer = visitor.client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["x-frame-options"] == "DENY"
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'self'" in policy
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text), path
        assert not re.search(r" (?:on\w+|style)=", answer.text), path
    assert "no page at /ui/nothing" in visitor.get("/ui/nothing", 404)


def test_a_topic_is_created_expanded_and_deleted(visitor: Visitor) -> None:
    page = visitor.post("/ui/topics", name="life", partitions="2", configs="retention.ms=1000")
    assert "Topic life was created" in page
    assert "life has 3 partitions now" in visitor.post("/ui/topics/life/partitions", total="3")
    assert "?partition=2" in visitor.get("/ui/topics/life")
    configs = visitor.get("/ui/configs/topic/life?changed=1")
    assert ">1000<" in configs
    assert ">604800000<" in configs
    assert "Type life" in visitor.post("/ui/topics/life/delete", confirm="other")
    assert "life was deleted" in visitor.post("/ui/topics/life/delete", confirm="life")
    visitor.get("/ui/topics/life", 404)


def test_records_are_found_by_offset_time_key_and_text(visitor: Visitor, broker: Broker) -> None:
    fill(broker, "find", 40)
    here = "/ui/topics/find/records"
    assert offsets(visitor.get(f"{here}?count=3")) == [(0, 39), (0, 38), (0, 37)]
    assert offsets(visitor.get(f"{here}?from=earliest&count=2")) == [(0, 0), (0, 1)]
    assert offsets(visitor.get(f"{here}?from=offset&offset=7&count=2")) == [(0, 7), (0, 8)]
    moment = "2023-11-14T22:13:30"  # ten seconds after the first record
    assert offsets(visitor.get(f"{here}?from=time&time={moment}&count=1")) == [(0, 10)]
    assert offsets(visitor.get(f"{here}?from=earliest&only_key=key-3&count=2")) == [(0, 3), (0, 8)]
    assert offsets(visitor.get(f"{here}?from=earliest&text=VALUE+33")) == [(0, 33)]
    first = visitor.get(f"{here}?from=earliest&count=25")
    after = re.search(r'href="\?([^"]+)" rel="next"', first)
    assert after is not None
    assert offsets(visitor.get(f"{here}?{unescape(after[1])}"))[0] == (0, 25)
    assert "is not a time" in visitor.get(f"{here}?from=time&time=soon")


def test_the_newest_records_are_the_newest_of_all_partitions(
    visitor: Visitor, broker: Broker
) -> None:
    fill(broker, "spread", 30, partitions=3)
    found = offsets(visitor.get("/ui/topics/spread/records?count=4"))
    assert found == [(2, 9), (1, 9), (0, 9), (2, 8)]


def test_a_record_is_produced_in_each_format_and_shown(visitor: Visitor, broker: Broker) -> None:
    visitor.post("/ui/topics", name="write", partitions="1")
    here = "/ui/topics/write/produce"
    sent = {"key": "k", "key_format": "string", "value": '{"a": 1}', "value_format": "json"}
    assert "write-0, offset 0" in visitor.post(here, **sent, headers="trace: 42\nempty:")
    sent = {"key_null": "1", "value": "00ff", "value_format": "hex"}
    assert "offset 1" in visitor.post(here, **sent)
    assert "offset 2" in visitor.post(here, key="gone", key_format="string", value_null="1")
    assert "is not JSON" in visitor.post(here, 400, key_null="1", value="{", value_format="json")
    page = visitor.get("/ui/topics/write/records")
    assert "00 ff" in page
    assert "tombstone" in page
    assert "<dt>trace</dt><dd><code>42</code></dd>" in page
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("write", 0)])
        found = []
        while len(found) < 3:
            found += consumer.poll(1000)
    assert [(each.key, each.value) for each in found] == [
        (b"k", b'{"a": 1}'), (None, b"\x00\xff"), (b"gone", None)
    ]  # fmt: skip


def test_avro_is_written_and_read_with_a_registry(broker: Broker) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    with SchemaRegistry() as registry:
        body = {"schema": json.dumps(schema)}
        registry.find("POST", ["subjects", "avro-value", "versions"], body)
        settings = ConsoleSettings({"bootstrap.servers": broker.address}, registry=registry.url)
        with TestClient(console_app(settings), base_url=URL) as client:
            visitor = Visitor(client)
            visitor.post("/ui/topics", name="avro", partitions="1")
            here = "/ui/topics/avro"
            row = {"key_null": "1", "value_format": "avro"}
            assert "offset 0" in visitor.post(f"{here}/produce", **row, value='{"id": 7}')
            assert "not match schema" in visitor.post(f"{here}/produce", 400, **row, value="{}")
            visitor.post(f"{here}/produce", key_null="1", value="plain", value_format="string")
            page = visitor.get(f"{here}/records?from=earliest&value=avro")
            assert "<code>{&#34;id&#34;:7}</code>" in page
            assert "shown as hex: the value is not Avro" in page


def test_what_a_record_holds_is_never_markup(visitor: Visitor) -> None:
    visitor.post("/ui/topics", name="markup", partitions="1")
    evil = "<script>alert(1)</script>"
    visitor.post("/ui/topics/markup/produce", key=evil, key_format="string", value=evil)
    page = visitor.get("/ui/topics/markup/records")
    assert evil not in page
    assert page.count("&lt;script&gt;alert(1)") == 2


def test_a_group_shows_lag_and_is_reset_after_a_dry_run(visitor: Visitor, broker: Broker) -> None:
    fill(broker, "lagging", 20)
    with AdminClient(broker.address) as admin:
        admin.alter_group_offsets("slow", {TopicPartition("lagging", 0): 15})
    page = visitor.get("/ui/groups/slow")
    assert "<dt>Lag</dt><dd>5</dd>" in page
    planned = visitor.get("/ui/groups/slow/reset?way=shift&value=-10")
    assert "<b>5</b>" in planned
    [offsets] = re.findall('name="offsets" value="(lagging:0=5@[0-9]+) "', planned)
    with AdminClient(broker.address) as admin:
        tp = TopicPartition("lagging", 0)
        assert admin.list_group_offsets("slow")[tp].offset == 15, "a dry run changes nothing"
        assert "1 offset of slow was reset" in visitor.post(
            "/ui/groups/slow/reset", offsets=offsets
        )
        assert admin.list_group_offsets("slow")[tp].offset == 5
        admin.delete_topics(["lagging"])
        fill(broker, "lagging", 20)
        page = visitor.post("/ui/groups/slow/reset", offsets=offsets)
        assert "INVALID_PARTITION_EPOCH" in page, "it was planned for the deleted topic"
        assert tp not in admin.list_group_offsets("slow")
    assert "is not TOPIC" in visitor.post("/ui/groups/slow/reset", 400, offsets="nonsense")
    assert "slow was deleted" in visitor.post("/ui/groups/slow/delete", confirm="slow")


def test_no_offset_of_a_deleted_topic_is_shifted(
    visitor: Visitor, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "twice", 20)
    tp = TopicPartition("twice", 0)
    with AdminClient(broker.address) as admin:
        epoch = admin.list_offsets({tp: "latest"})[tp].partition_epoch
        admin.delete_topics(["twice"])
        fill(broker, "twice", 20)
        late = {tp: OffsetAndMetadata(15, offset_epoch=encode(epoch, -1))}

    async def listed(*_: Any, **__: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        return late

    monkeypatch.setattr(ConsoleAdmin, "list_group_offsets", listed)
    page = visitor.get("/ui/groups/late/reset?way=shift&value=-10")
    assert "committed for twice-0 belong to an earlier topic of that name" in page


def test_members_and_their_epochs_are_shown(visitor: Visitor, broker: Broker) -> None:
    fill(broker, "read", 4, partitions=2)
    with Consumer("read", bootstrap_servers=broker.address, group_id="readers",
                  auto_offset_reset="earliest", client_id="reader-1") as consumer:  # fmt: skip
        while len(consumer.assignment()) < 2:
            consumer.poll(100)
        page = visitor.get("/ui/groups/readers")
        assert "reader-1" in page
        assert "<dt>Group epoch</dt>" in page
        assert "<dt>Assignment epoch</dt>" in page
        assert "read-0 read-1" in page
        assert "The group has 1 member. Stop it first" in visitor.get("/ui/groups/readers/reset")
        listed = visitor.get("/ui/groups?kind=consumer&q=READ")
        assert "/ui/groups/readers" in listed


def test_a_streams_group_shows_its_topology_and_the_tasks_of_members(
    visitor: Visitor, broker: Broker
) -> None:
    fill(broker, "lines", 4, partitions=2)
    host, _, port = broker.address.rpartition(":")
    line: Any = Line(SimpleNamespace(host=host, port=int(port)))  # type: ignore[arg-type]
    told = topology(subtopology("0", "lines"))
    member = StreamsClient(line, "member-a", told)
    with contextlib.closing(line.sock):
        for _ in range(8):
            assert member.beat().error_code == 0
        assert len(member.active) == 2
        page = visitor.get("/ui/groups/g")
        assert "<small>streams group</small>" in page
        assert "<h2>Topology</h2>" in page
        assert "member-a" in page
        assert "0_0 0_1 " in page
        assert "/ui/groups/g" in visitor.get("/ui/groups?kind=streams")


def test_a_config_is_checked_set_and_taken_back(visitor: Visitor) -> None:
    visitor.post("/ui/topics", name="conf", partitions="1")
    here = "/ui/configs/topic/conf"
    assert "is valid" in visitor.post(here, key="retention.ms", value="5000", action="check")
    assert ">retention.ms<" not in visitor.get(f"{here}?changed=1")
    assert "retention.ms is 5000 now" in visitor.post(here, key="retention.ms", value="5000")
    changed = visitor.get(f"{here}?changed=1")
    assert ">retention.ms<" in changed
    assert "<td>topic</td>" in changed
    assert "INVALID_CONFIG" in visitor.post(here, key="retention.ms", value="much")
    visitor.post(here, key="retention.ms", action="unset")
    assert ">retention.ms<" not in visitor.get(f"{here}?changed=1")


def test_quotas_and_users_are_set_and_removed(visitor: Visitor) -> None:
    page = visitor.post("/ui/quotas", user="ann", key="producer_byte_rate", value="2048")
    assert "user ann" in page
    assert "2 KB/s" in page
    page = visitor.post("/ui/quotas", user="ann", key="producer_byte_rate", action="remove")
    assert "0 quotas" in page
    page = visitor.post("/ui/users", user="ann", password="pw", mechanism="SCRAM-SHA-256")
    assert "4,096" in page
    page = visitor.post("/ui/users/delete", user="ann", mechanism="SCRAM-SHA-256")
    assert "0 users" in page


def test_the_oldest_open_transaction_comes_first(visitor: Visitor, broker: Broker) -> None:
    visitor.post("/ui/topics", name="txn", partitions="1")
    settings = {"bootstrap.servers": broker.address}
    first = Producer({**settings, "transactional.id": "txn-old"})
    second = Producer({**settings, "transactional.id": "txn-young"})
    with first, second:
        for producer in (first, second):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("txn", b"x").result(30)
        page = visitor.get("/ui/transactions")
        assert "<dt>Open</dt><dd>2</dd>" in page
        assert "<dt>Oldest</dt><dd>txn-old</dd>" in page
        assert page.index('scope="row">txn-old') < page.index('scope="row">txn-young')
        assert not offsets(visitor.get("/ui/topics/txn/records?isolation=read_committed"))
        for producer in (first, second):
            producer.commit_transaction()
    assert "<dt>Open</dt><dd>0</dd>" in visitor.get("/ui/transactions?open=1")


def test_the_history_tells_of_expansions_and_elections(visitor: Visitor, broker: Broker) -> None:
    fill(broker, "grown", 3)
    visitor.post("/ui/topics/grown/partitions", total="4")
    page = visitor.get("/ui/topics/grown/history?partition=0")
    added = re.search(r'id="expansions".*?</table>', page, re.DOTALL)
    assert added is not None
    assert "1, 2, 3</th><td>1 partition<" in added[0]
    elections = re.search(r'id="elections".*?</table>', page, re.DOTALL)
    assert elections is not None
    assert "2023-11-14 22:13:20.000" in elections[0]
