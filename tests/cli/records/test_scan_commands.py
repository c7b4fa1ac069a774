"""`kstore scan` as a user types it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kstore
from kstore.types import Header
from tests.cli.shell import Shell, run_here

AT_MS = 1_772_366_400_000  # 2026-03-01T12:00:00Z


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A log dir with three records: of text, with nulls, and of bytes."""
    with kstore.open_log(tmp_path / "log", topic="orders") as log:
        log.append(b"nineteen", key=b"ada", timestamp=AT_MS, headers=[Header("kind", b"new")])
        log.append(None, key=b"bob", timestamp=AT_MS + 1)
        log.append(b"\xff\n", timestamp=AT_MS + 2)
    return str(tmp_path / "log")


def output(*arguments: str) -> str:
    return Shell().text("scan", *arguments)


def test_a_table_shows_times_and_what_is_no_text(folder: str) -> None:
    assert output("--path", folder) == (
        'PARTITION  OFFSET  TIMESTAMP                      KEY  VALUE     HEADERS\n'
        '        0       0  2026-03-01T12:00:00.000+00:00  ada  nineteen  [["kind", "new"]]\n'
        '        0       1  2026-03-01T12:00:00.001+00:00  bob  -         -\n'
        '        0       2  2026-03-01T12:00:00.002+00:00  -    \\xff\\n    -\n'
    )  # fmt: skip


def test_columns_offsets_times_and_a_limit_select(folder: str) -> None:
    wide = ("--path", folder, "--columns", "key, offset")
    assert output(*wide, "--start-offset", "1", "--limit", "1") == "KEY  OFFSET\nbob       1\n"
    assert output(*wide, "--end-offset", "1") == "KEY  OFFSET\nada       0\n"
    late = ("--start-time", "2026-03-01T12:00:00.001", "--end-time", str(AT_MS + 2))
    assert output(*wide, *late) == "KEY  OFFSET\nbob       1\n"
    assert output(*wide, "--start-offset", "3") == ""


def test_json_is_as_consume_writes_it(folder: str) -> None:
    rows = [json.loads(line) for line in output("--path", folder, "--json").splitlines()]
    assert rows[0] == {
        "partition": 0, "offset": 0, "timestamp": AT_MS, "key": "ada", "value": "nineteen",
        "headers": [["kind", "new"]],
    }  # fmt: skip
    assert rows[2]["value_base64"] == "/wo="


def test_files_are_written_by_their_ending(folder: str, tmp_path: Path) -> None:
    parquet, table = tmp_path / "orders.parquet", tmp_path / "orders.csv"
    assert output("--path", folder, "--to", str(parquet)) == f"3 records in {parquet}\n"
    assert pq.read_table(parquet).to_pylist() == kstore.scan(folder).to_arrow().to_pylist()
    told = output("--path", folder, "--to", str(table), "--end-offset", "2", "--json")
    assert json.loads(told) == {"records": 2, "file": str(table)}
    assert table.read_text() == (
        "partition,offset,timestamp,key,value,headers\n"
        '0,0,2026-03-01T12:00:00.000+00:00,ada,nineteen,"[[""kind"", ""new""]]"\n'
        "0,1,2026-03-01T12:00:00.001+00:00,bob,,\n"
    )


def test_a_table_in_a_file_has_all_records(folder: str, tmp_path: Path) -> None:
    with kstore.open_log(folder, topic="orders") as log:
        for number in range(120):
            log.append(b"%d" % number)
    table = tmp_path / "orders.txt"
    assert output("--path", folder, "--to", str(table)) == f"123 records in {table}\n"
    assert len(table.read_text().splitlines()) == 1 + 123
    shown = run_here("scan", "--path", folder)
    assert len(shown.output.splitlines()) == 1 + 100
    assert b"--limit 0 shows all" in shown.errors


def test_a_device_stays_one_and_a_link_leads_to_the_file(folder: str, tmp_path: Path) -> None:
    assert output("--path", folder, "--json", "--to", os.devnull)
    assert not Path(os.devnull).is_file()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "orders.json")
    output("--path", folder, "--to", str(link))
    assert len((tmp_path / "orders.json").read_text().splitlines()) == 3
    assert link.is_symlink()


def test_a_file_that_failed_is_not_there(folder: str, tmp_path: Path) -> None:
    done = run_here("scan", "--path", folder, "--to", str(tmp_path / "orders.csv"))
    assert done.code == 1
    assert "record 2 is not UTF-8, which CSV needs" in done.errors.decode()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log"]


def test_damage_is_told_and_can_be_skipped(folder: str) -> None:
    (segment,) = Path(folder).rglob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"nineteen", b"nineteeN"))
    done = run_here("scan", "--path", folder)
    assert done.code == 1
    assert "se --on-loss skip" in done.errors.decode()
    assert output("--path", folder, "--columns", "key", "--on-loss", "skip") == "KEY\nbob\n-\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "xml"], "table or json or csv or parquet, not 'xml'"),
        (["--format", "parquet"], "needs --to"),
        (["-b", "nowhere:1"], "--path reads files"),
        (["--columns", "values"], "use some of partition, offset"),
        (["--on-loss", "no"], "fail or skip"),
    ],
)
def test_what_cannot_be_meant(folder: str, arguments: list[str], words: str) -> None:
    done = run_here("scan", "--path", folder, *arguments)
    assert done.code == 2
    assert words in " ".join(done.errors.decode().replace("│", " ").split())


@pytest.mark.slow
def test_a_cluster_is_read_up_to_its_end(kstore: Shell) -> None:
    kstore("topic", "create", "scanned", "--partitions", "1")
    kstore("produce", "scanned", stdin=b"first\nsecond\n")
    assert kstore("scan", "scanned", "--columns", "value") == b"VALUE\nfirst\nsecond\n"


def test_without_a_path_and_servers_it_asks_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def refused(*_: object, config: dict[str, object], **__: object) -> None:
        asked.update(config)
        raise ValueError("seen")

    monkeypatch.setattr(kstore, "scan", refused)
    run_here("scan", "orders", environment={})
    assert asked["bootstrap.servers"] == "localhost:9092"
