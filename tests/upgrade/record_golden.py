"""Makes the golden data of a release: ``python -m tests.upgrade.record_golden 0.2.0``, once, with
the code of that release. It writes golden/<version>.tar.xz, a data folder of a single broker and an
embedded log dir; and golden/<version>.json, requests and answers in bytes. The data of a release is
never recorded again: later versions have to read it as it is.
"""

from __future__ import annotations

import io
import json
import shutil
import socket
import struct
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kstore
from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.registry import APIS, Api, encode_request
from kstore.protocol.schema import Message
from kstore.testing.brokers import Broker

GOLDEN = Path(__file__).parent / "golden"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 20
SETTINGS = {
    "node.id": 1, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
}  # fmt: skip
LENGTH = struct.Struct(">i")


def fill_broker(servers: str) -> None:
    """Topics with every codec, transactions, a compacted topic, configs, users, groups."""
    with AdminClient({"bootstrap.servers": servers}) as admin:
        admin.create_topics(
            [
                *(NewTopic(f"codec-{codec}", 1) for codec in CODECS),
                NewTopic("transactions", 1),
                NewTopic("compacted", 1, configs={"cleanup.policy": "compact"}),
            ]
        )
        admin.alter_configs("codec-gzip", {"retention.ms": "123456789"})
    for codec in CODECS:
        with Producer({"bootstrap.servers": servers, "compression.type": codec}) as producer:
            for number in range(RECORDS):
                producer.send(f"codec-{codec}", b"value %d" % number, key=b"key %d" % number)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(RECORDS):
            producer.send("compacted", b"value %d" % number, key=b"key %d" % (number % 3))
    with Producer({"bootstrap.servers": servers, "transactional.id": "golden"}) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("transactions", b"value %d" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    settings = {"bootstrap.servers": servers, "group.id": "golden", "enable.auto.commit": False}
    with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["codec-none"])
        seen = 0
        while seen < RECORDS:
            seen += len(consumer.poll(1.0))
        consumer.commit()


def fill_log_dir(path: Path) -> None:
    """Embedded logs: segments, a cursor, a queue, a transaction, a compacted log, deletions."""
    with kstore.open_log_dir(path, segment_bytes=1000) as log_dir:
        log = log_dir.log("orders")
        for number in range(0, 100, 5):
            log.append_many([b"%d" % each for each in range(number, number + 5)])
        log.cursor("mailer").commit(42, metadata="golden")
        log.delete_before(7)
        queue = log.queue("workers")
        message = queue.get()
        message.ack()
        queue.close()
        with log_dir.transaction() as transaction:
            transaction.append(log, b"both")
            transaction.append(log_dir.log("other"), b"both")
    with kstore.open_log(path, topic="shared", shared=True) as log:
        log.append(b"shared")
    with kstore.open_log(
        path, topic="compacted", segment_bytes=500, cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
    ) as log:  # fmt: skip
        for number in range(60):
            log.append(b"%d" % number, key=b"%d" % (number % 3))
        log.compact()


def request_of(api: Api) -> Message:
    """A request with default values; those of ApiVersions are refused from version 3 on."""
    request = api.request()
    if isinstance(request, ApiVersionsRequest):
        request.client_software_name, request.client_software_version = "golden", "1"
    return request


def requests() -> Iterator[tuple[str, int, bytes]]:
    """(API, version, frame) of each API in each version, with default values, as every side of the
    protocol encodes them: clients, and brokers among themselves.
    """
    for key in sorted(APIS):
        api = APIS[key]
        for version in range(api.min_version, api.max_version + 1):
            frame = encode_request(request_of(api), version, 7, "golden")
            yield api.name, version, bytes(frame)


def ask(address: str, frame: bytes) -> bytes:
    """The answer of a broker, without its length."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(frame)
        with sock.makefile("rb") as file:
            return file.read(LENGTH.unpack(file.read(LENGTH.size))[0])


def record(version: str) -> None:
    """Write both files of this release."""
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with Broker(root / "broker", SETTINGS) as broker:
            fill_broker(broker.bootstrap_servers)
            frames = list(requests())
            versions = {
                str(version): ask(broker.bootstrap_servers, frame).hex()
                for name, version, frame in frames
                if name == "ApiVersions"
            }
            broker.shut_down()
        fill_log_dir(root / "embedded")
        shutil.move(root / "broker" / "data", root / "data")
        target = GOLDEN / f"{version}.tar.xz"
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for name in ("data", "embedded"):
                archive.add(root / name, name, filter=_anonymous)
    rows = {"requests": [[name, version, frame.hex()] for name, version, frame in frames]}
    text = json.dumps(rows | {"api_versions": versions}, indent=0)
    (GOLDEN / f"{version}.json").write_text(text + "\n")
    print(f"{target}: {target.stat().st_size} bytes")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    if name in {".kstore.mdb-lock", "lock.mdb", ".lock", "owner", "data.mdb.backup"}:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(version: str, target: Path) -> None:
    """The golden folders of a release."""
    data = (GOLDEN / f"{version}.tar.xz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(target, filter="data")


if __name__ == "__main__":
    record(sys.argv[1])
