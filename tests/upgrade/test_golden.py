"""What released versions have written and sent: this version opens it, answers it, and refuses what
is newer than itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

import kstore
from kstore.broker.coordination.lmdb_store import read_nodes
from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.log_dirs.meta_properties import claim_log_dirs
from kstore.cli.app import run
from kstore.clients import AdminClient
from kstore.log.errors import LogError
from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.registry import APIS, decode_request, decode_response
from kstore.protocol.schema import Message
from kstore.testing.brokers import Broker
from tests.beside.topic_records import records_of
from tests.upgrade.record_golden import CODECS, GOLDEN, RECORDS, SETTINGS, ask, request_of, unpack

VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


def values(servers: str, topic: str) -> list[bytes]:
    found = records_of(servers, topic, isolation_level="read_committed")
    return [record.value for record in found]


def test_each_release_has_its_golden_folder() -> None:
    changes = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")
    assert set(re.findall(r"^## ([0-9.]+)", changes, re.MULTILINE)) == set(VERSIONS)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_what_a_release_has_written(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    assert run(["upgrade", "check", "--folder", str(tmp_path / "data")]) == 0
    settings = SETTINGS | {"log.dirs": tmp_path / "data"}
    recorded = json.loads((GOLDEN / f"{version}.json").read_text())
    with Broker(tmp_path / "broker", settings) as broker:
        servers = broker.bootstrap_servers
        for codec in CODECS:
            assert values(servers, f"codec-{codec}") == [b"value %d" % n for n in range(RECORDS)]
        assert values(servers, "transactions") == [b"value 0", b"value 2"]
        assert values(servers, "compacted")[-3:] == [b"value %d" % n for n in range(17, RECORDS)]
        with AdminClient({"bootstrap.servers": servers}) as admin:
            assert admin.describe_configs("codec-gzip")["retention.ms"].value == "123456789"
            [commit] = admin.list_group_offsets("golden").values()
            assert commit.offset == RECORDS
        for row, frame in ((row, bytes.fromhex(row[2])) for row in recorded["requests"]):
            if row[0] == "ApiVersions":
                before = bytes.fromhex(recorded["api_versions"][str(row[1])])
                check_versions(before, ask(servers, frame), row[1])
        assert run(["upgrade", "check", "-b", servers]) == 0


def check_versions(before: bytes, now: bytes, version: int) -> None:
    """Every version that the release served is still served."""
    old, new = (decoded(answer, version) for answer in (before, now))
    served = {row.api_key: (row.min_version, row.max_version) for row in new.api_keys}
    assert (old.error_code, new.error_code) == (0, 0)
    for row in old.api_keys:
        low, high = served[row.api_key]
        assert low <= row.min_version, APIS[row.api_key]
        assert row.max_version <= high, APIS[row.api_key]
    features = {row.name: row.max_version for row in new.supported_features}
    assert all(row.max_version <= features[row.name] for row in old.supported_features)


def decoded(answer: bytes, version: int) -> ApiVersionsResponse:
    return decode_response(answer, ApiVersionsResponse, version)[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_a_release_are_understood_as_they_were(version: str) -> None:
    rows = json.loads((GOLDEN / f"{version}.json").read_text())["requests"]
    assert len(rows) > 200
    by_name = {api.name: api for api in APIS.values()}
    for name, api_version, frame in rows:
        header, message = decode_request(bytes.fromhex(frame)[4:])
        api = by_name[name]
        assert (header.request_api_key, header.request_api_version) == (api.key, api_version)
        assert (header.correlation_id, header.client_id) == (7, "golden")
        assert message == understood(request_of(api), api_version), (name, api_version)


def understood(request: Message, version: int) -> Message:
    """What of a request a version has."""
    return type(request).decode(request.encode(version), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_embedded_logs_of_a_release_are_as_they_were(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    path = tmp_path / "embedded"
    assert run(["upgrade", "check", "--folder", str(path)]) == 0
    with kstore.open_log_dir(path) as log_dir:
        log = log_dir.log("orders", create=False)
        expected = [*(b"%d" % number for number in range(7, 100)), b"both"]
        assert [record.value for record in log.records()] == expected
        assert log.log_start_offset == 7
        cursor = log.cursor("mailer")
        assert (cursor.committed, cursor.metadata) == (42, "golden")
        queue = log.queue("workers")
        stats = queue.stats()
        assert (stats.acknowledged, stats.ready) == (1, 93)
        queue.close()
        assert [record.value for record in log_dir.log("other", create=False).records()] == [
            b"both"
        ]
        assert [record.value for record in log_dir.log("shared", create=False).records()] == [
            b"shared"
        ]
        newest = [record.value for record in log_dir.log("compacted", create=False).records()][-3:]
        assert newest == [b"57", b"58", b"59"]


def patch(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def raise_store(root: Path) -> None:
    with (
        lmdb.open(str(root / "data" / ".coordination"), max_dbs=0) as env,
        env.begin(write=True) as txn,
    ):
        for key in (b"\x00\x00/", b"\x00\x02/cluster/id"):
            value = txn.get(key)
            assert value is not None
            txn.put(key, b"\x09" + bytes(value)[1:])


def open_cursor(root: Path) -> None:
    with kstore.open_log(root / "embedded", topic="orders") as log:
        assert log.cursor("mailer").committed


def open_queue(root: Path) -> None:
    with kstore.open_log(root / "embedded", topic="orders") as log:
        log.queue("workers")


def open_logs(root: Path) -> None:
    kstore.open_log_dir(root / "embedded").close()


NEWER: dict[str, tuple[Callable[[Path], None], Callable[[Path], object], str]] = {
    "cursor": (
        lambda root: [
            patch(each, at, b"KCU9")
            for each in (root / "embedded" / ".cursors").iterdir() for at in (0, 16384)
        ] and None,
        open_cursor, "embedded",
    ),
    "queue": (
        lambda root: patch(root / "embedded" / "orders-0" / "queue.workers", 8, b"\x09"),
        open_queue, "embedded",
    ),
    "journal": (
        lambda root: patch(root / "embedded" / ".transaction", 0, b"kstrtxn9"),
        open_logs, "embedded",
    ),
    "owner": (
        lambda root: (root / "data" / "meta.properties").write_text("version=9\n") and None,
        lambda root: claim_log_dirs([str(root / "data")], "x", 1), "data",
    ),
    "store": (raise_store, lambda root: read_nodes(str(root / "data" / ".coordination")), "data"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NEWER)
def test_a_newer_format_is_refused_with_what_to_do(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(VERSIONS[-1], tmp_path)
    damage, opened, folder = NEWER[kind]
    damage(tmp_path)
    with pytest.raises((LogError, StoreError), match=r"kstore reads.*") as told:
        opened(tmp_path)
    if kind != "queue":
        assert "use the newer version that wrote it" in str(told.value)
    capsys.readouterr()
    assert run(["upgrade", "check", "--folder", str(tmp_path / folder), "--json"]) == 1
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    [bad] = [row for row in rows if not row["good"]]
    assert (bad["check"], bad["found"]) == ("format", "9")
    assert "can't take over yet" in said.err


def test_a_setting_that_has_gone_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\nlog.dirs={tmp_path}\nlog.gone.setting=1\n")
    assert run(["upgrade", "check", "--config", str(path)]) == 1
    assert "log.gone.setting" in capsys.readouterr().out
    assert run(["upgrade", "check", "--folder", os.fspath(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err
