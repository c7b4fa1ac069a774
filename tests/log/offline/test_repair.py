"""Repair at the operator's word: what is certain is put back, the rest is cut out, a copy stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kstore
from kstore.cli.app import run
from kstore.log import LogDirLockedError, open_log_dir
from kstore.log.offline.repair import repair
from tests.log.handling import flip_bit, remove_index
from tests.log.segments.test_damage import COUNT, make, read_all

EVERY = {n: b"value %d" % n for n in range(COUNT * 2)}


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("number", [0, 2, 5, 7])
@pytest.mark.parametrize(
    ("at", "bit", "says"),
    [
        (4, 0, "base offset"), (7, 0, "base offset"), (7, 1, "base offset"),
        (8, 2, "batch length"), (11, 1, "batch length"), (16, 0, "magic"), (15, 3, "leader epoch"),
    ],
)  # fmt: skip
def test_a_header_is_put_back(
    tmp_path: Path, at: int, bit: int, says: str, number: int, indexed: bool
) -> None:
    path = tmp_path / "log"
    file, start, end = make(path)[number]
    whole = file.read_bytes()
    flip_bit(file, start + at, bit)
    damaged = file.read_bytes()
    if not indexed:
        remove_index(path)
    [planned] = repair(path, dry_run=True, open_dir=open_log_dir)
    assert file.read_bytes() == damaged
    [done] = repair(path, open_dir=open_log_dir)
    assert done == planned
    assert (done.action, done.position, done.end_position) == ("restore", start, end)
    assert done.detail.startswith(says)
    assert file.read_bytes() == whole
    assert Path(done.copy).read_bytes() == damaged[start:end]
    with kstore.open_log(path) as log:
        assert read_all(log) == (EVERY, [])
    assert repair(path, open_dir=open_log_dir) == []


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("number", [0, 2, 5, 7])
def test_what_cannot_be_put_back_is_cut_out_and_kept_as_a_copy(
    tmp_path: Path, number: int, indexed: bool
) -> None:
    path = tmp_path / "log"
    file, start, end = make(path)[number]
    flip_bit(file, end - 3, 2)
    damaged = file.read_bytes()
    if not indexed:
        remove_index(path)
    [done] = repair(path / "log-0", open_dir=open_log_dir)
    assert (done.action, done.first_offset, done.next_offset) == (
        "remove",
        2 * number,
        2 * number + 2,
    )
    assert Path(done.copy).read_bytes() == damaged[start:end]
    assert file.read_bytes() == damaged[:start] + damaged[end:]
    with kstore.open_log(path) as log:
        kept = {n: v for n, v in EVERY.items() if n // 2 != number}
        assert read_all(log)[0] == kept
        assert log.recovery.damages == []
        assert log.append(b"next") == COUNT * 2


def test_a_log_dir_that_is_in_use_is_not_repaired(tmp_path: Path) -> None:
    file, start, _ = make(tmp_path)[2]
    flip_bit(file, start + 4, 0)
    with kstore.open_log(tmp_path), pytest.raises(LogDirLockedError):
        repair(tmp_path, open_dir=open_log_dir)


def test_a_good_log_and_a_torn_tail_are_left_alone(tmp_path: Path) -> None:
    file, start, _ = make(tmp_path)[COUNT - 1]
    os.truncate(file, start + 20)
    before = file.read_bytes()
    assert repair(tmp_path, open_dir=open_log_dir) == []
    assert file.read_bytes() == before


def test_the_command_says_what_it_would_do_and_does_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    rows = make(path)
    flip_bit(rows[2][0], rows[2][1] + 7, 0)
    flip_bit(rows[5][0], rows[5][2] - 3, 2)
    before = {file: file.read_bytes() for file in path.rglob("*.log")}
    command = ["log", "verify", str(path)]
    assert run(command) == 1
    assert "2 problems" in capsys.readouterr().err
    assert run([*command, "--repair", "--dry-run"]) == 1
    said = capsys.readouterr()
    assert "would restore: base offset" in said.out
    assert "would remove: " in said.out
    assert "2 repairs would be made" in said.out
    assert "run it without --dry-run" in said.err
    assert {file: file.read_bytes() for file in path.rglob("*.log")} == before
    assert run([*command, "--repair"]) == 0
    assert "2 repairs made" in capsys.readouterr().out
    assert run([*command, "--repair", "--dry-run"]) == run(command) == 0
    with open_log_dir(path):
        assert run([*command, "--repair"]) == 1
    assert ": stop it, or use another folder" in capsys.readouterr().err
    assert run(["log", "verify", str(rows[0][0]), "--repair"]) == 1
    assert "use the partition's folder" in capsys.readouterr().err
