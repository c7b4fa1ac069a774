"""Three scripted brokers, the first of which is cut off from the controller: in its old metadata it
leads and coordinates everything. The second really does, and the third knows that.

What a test says of a request holds at the first broker; all else succeeds at each of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kstore.broker.api.requests.error_responses import failed
from kstore.protocol.schema import Message
from tests.clients.metadata_answers import metadata
from tests.clients.scripted_log import batch
from tests.plain_messages import Answer
from tests.reference.connection import RequestReceived, ServerConnection
from tests.reference.fake_broker import SILENCE, FakeBroker

OUTDATED, LEADER, OTHER = range(3)
NEW, OLD = UUID(int=7), UUID(int=3)
"""The topic's id, and that of the one that had its name before."""
EPOCH, OLD_EPOCH = 7, 3
"""Their partition epochs."""
RECORDS = batch(0, b"a", b"b")
FEATURES = ("kstore.kip232", "kstore.kip253")
Script = Callable[[Any, int], Any]


class _Broker(FakeBroker):
    """One of them; `script` maps the name of an API to its answer for (request, version)."""

    def __init__(self, number: int, cluster: Brokers) -> None:
        super().__init__()
        self.number = number
        self.script: dict[str, Script] = {}
        self._cluster = cluster

    def _handle(self, machine: ServerConnection, event: RequestReceived) -> bool:
        request, version = event.message, event.version
        name = type(request).__name__.removesuffix("Request")
        with self._cluster.lock:
            self._cluster.asked[self.number, name] += 1
        script = self.script.get(name) or getattr(self, f"_on_{_snake(name)}", _success)
        answer = script(request, version)
        if answer is not SILENCE:
            machine.respond(event, answer)
        return True

    @property
    def is_outdated(self) -> bool:
        return self.number == OUTDATED

    # ---- what succeeds ----

    def _on_api_versions(self, request: Any, _version: int) -> Any:
        answer = self._api_versions(request)
        rows = [{"name": name, "min_version": 0, "max_version": 1} for name in FEATURES]
        more = Answer.ApiVersions(supported_features=rows)
        answer.supported_features = more.supported_features
        return answer

    def _on_metadata(self, _request: Any, _version: int) -> Any:
        cluster = self._cluster
        is_old = self.is_outdated and cluster.is_made_again
        leads = OUTDATED if self.is_outdated and cluster.leads else LEADER
        epoch = OLD_EPOCH if is_old else EPOCH
        row = {
            "leader_id": leads, "leader_epoch": 1 + (leads == LEADER), "replica_nodes": [leads],
            "isr_nodes": [leads], "partition_epoch": epoch,
        }  # fmt: skip
        ports, topic_id = [each.port for each in cluster.brokers], OLD if is_old else NEW
        return metadata(ports, row, row, topic_id=topic_id, max_partition_epoch=epoch)

    def _on_find_coordinator(self, request: Any, _version: int) -> Any:
        number = OUTDATED if self.is_outdated and self._cluster.coordinates else LEADER
        port = self._cluster.brokers[number].port
        rows = [
            {"key": key, "node_id": number, "host": "127.0.0.1", "port": port}
            for key in request.coordinator_keys
        ]
        return Answer.FindCoordinator(coordinators=rows)

    def _on_init_producer_id(self, request: Any, _version: int) -> Any:
        return self._init_producer_id(request)

    def _on_join_group(self, request: Any, _version: int) -> Any:
        member = request.member_id or "m"
        (protocol, *_) = request.protocols
        me = {"member_id": member, "metadata": protocol.metadata}
        return Answer.JoinGroup(
            generation_id=1, protocol_type="consumer", protocol_name=protocol.name, leader=member,
            member_id=member, members=[me],
        )  # fmt: skip

    def _on_sync_group(self, request: Any, _version: int) -> Any:
        (mine, *_) = [row.assignment for row in request.assignments] or [b""]
        return Answer.SyncGroup(assignment=mine)

    def _on_consumer_group_heartbeat(self, _request: Any, _version: int) -> Any:
        return Answer.ConsumerGroupHeartbeat(**_assigned(0, 1))

    def _on_share_group_heartbeat(self, _request: Any, _version: int) -> Any:
        return Answer.ShareGroupHeartbeat(**_assigned(0))

    def _on_share_fetch(self, request: Any, version: int) -> Any:
        spans = [{"first_offset": 0, "last_offset": 1, "delivery_count": 1}]
        more = Answer.ShareFetch(responses=[{"partitions": [{"acquired_records": spans}]}])
        acquired = more.responses[0].partitions[0].acquired_records
        return _success(request, version, records=RECORDS, acquired_records=acquired)

    def _on_fetch(self, request: Any, version: int) -> Any:
        answer = _success(request, version, records=b"", partition_epoch=EPOCH)
        asked = [row for topic in request.topics for row in topic.partitions]
        new = {row.partition for row in asked if not row.fetch_offset}
        for topic in answer.responses:
            for row in topic.partitions:
                row.records = RECORDS if row.partition_index in new else b""
        if not new:
            time.sleep(request.max_wait_ms / 1000)  # as a broker does
        return answer

    def empty(self, request: Any, version: int) -> Any:
        """Nothing new, of a Fetch."""
        time.sleep(request.max_wait_ms / 1000)
        return _success(request, version)

    def _on_list_offsets(self, request: Any, version: int) -> Any:
        return _success(request, version, offset=0, partition_epoch=EPOCH)

    def _on_delete_records(self, request: Any, version: int) -> Any:
        return _success(request, version, low_watermark=1)

    def _on_offset_for_leader_epoch(self, request: Any, version: int) -> Any:
        return _success(request, version, leader_epoch=0, end_offset=2)

    def _on_leader_epoch_for_partition(self, request: Any, version: int) -> Any:
        rows = [
            {"name": t.name, "partitions": [
                {"partition_index": n, "partition_epoch": EPOCH} for n in t.partitions]}
            for t in request.topics
        ]  # fmt: skip
        return Answer.LeaderEpochForPartition(topics=rows)


class Brokers:
    """`asked` counts requests by (broker, API). What a test may set before it makes a client:

    ``coordinates``: the first broker names itself as the coordinator of everything.
    ``leads``: it believes that it leads the topic's partitions.
    ``is_made_again``: it knows only the topic that had the name before.
    """

    def __init__(self) -> None:
        self.brokers: list[_Broker] = []
        self.asked: Counter[tuple[int, str]] = Counter()
        self.lock = threading.Lock()
        self.coordinates = True
        self.leads = True
        self.is_made_again = False

    def refuse(self, api: str, code: int) -> None:
        """The first broker answers these requests with an error, for ever."""
        self.script(api, lambda request, version: failed(request, version, code, ""))

    def script(self, api: str, script: Script) -> None:
        self.brokers[OUTDATED].script[api] = script

    @property
    def bootstrap(self) -> str:
        return self.brokers[OUTDATED].address

    def times(self, number: int, api: str) -> int:
        with self.lock:
            return self.asked[number, api]


@contextlib.contextmanager
def cut_off_brokers() -> Iterator[Brokers]:
    cluster = Brokers()
    with contextlib.ExitStack() as stack:
        for number in range(3):
            cluster.brokers.append(stack.enter_context(_Broker(number, cluster)))
        yield cluster


def _success(request: Message, version: int, **fields: Any) -> Any:
    """An answer without errors, whose partitions have these fields."""
    answer = failed(request, version, 0, "")
    for topic in (getattr(answer, "responses", None) or answer.topics) if fields else ():
        for row in topic.partitions:
            for name, value in fields.items():
                setattr(row, name, value)
    return answer


def _assigned(*partitions: int) -> dict[str, Any]:
    """What a heartbeat's answer says to the only member."""
    rows = {"topic_partitions": [{"topic_id": NEW, "partitions": list(partitions)}]}
    known = {"member_id": "m", "member_epoch": 1, "heartbeat_interval_ms": 20}
    return known | {"assignment": rows}


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
