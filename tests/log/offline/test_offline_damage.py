"""Damage found offline: ``verify``, ``verify --repair --dry-run`` and ``dump`` name the same bytes
and the same offsets, and ``dump`` continues after them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.log import open_log_dir
from kstore.log.offline.dump import DumpedBatch, DumpedDamage, dump
from kstore.log.offline.repair import repair
from kstore.log.offline.verify import ExitStatus, verify
from tests.log.handling import flip_bit
from tests.log.segments.test_damage import COUNT, make

Range = tuple[str, int, int, int, int]

BITS = {
    "base offset up": (4, 0), "base offset up a little": (7, 3), "base offset down": (7, 1),
    "base offset negative": (0, 7), "length up": (11, 1), "length down": (11, 6),
    "length far up": (8, 2), "epoch up": (15, 3), "epoch down": (15, 0), "magic": (16, 0),
    "crc": (17, 0), "attributes": (22, 4), "records": (65, 2),
}  # fmt: skip


Places = list[tuple[Path, int, int]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Places]:
    """A closed log without damage, and where its batches are."""
    path = tmp_path_factory.mktemp("original") / "log"
    return path, make(path)


@pytest.fixture
def places(original: tuple[Path, Places], tmp_path: Path) -> Places:
    """A copy of it in ``tmp_path / "log"``: of each batch its file and its bytes."""
    whole, found = original
    shutil.copytree(whole, tmp_path / "log")
    return [(tmp_path / "log" / f.relative_to(whole), start, end) for f, start, end in found]


def named_by_all(path: Path) -> list[Range]:
    """The damage that every command names: file, bytes, offsets."""
    by_verify = [
        (p.segment, p.position, p.end_position, p.first_offset, p.next_offset)
        for p in verify(path, index=False).partitions[0].problems
    ]
    by_repair = [
        (r.segment, r.position, r.end_position, r.first_offset, r.next_offset)
        for r in repair(path, dry_run=True, open_dir=open_log_dir)
    ]
    by_dump = [
        (d.segment, d.position, d.end_position, d.first_offset, d.next_offset)
        for d in dump(path)
        if isinstance(d, DumpedDamage)
    ]
    assert by_verify == by_repair == by_dump
    return by_verify


def valid_offsets(path: Path) -> list[int]:
    """The base offsets of the valid batches that dump shows."""
    return [i.base_offset for i in dump(path) if isinstance(i, DumpedBatch) and i.is_valid]


def _is_case(kind: str, number: int) -> bool:
    """Whether the bit moves this batch's value the way that the kind says, and that can be seen: an
    epoch that is lower fits where none came before it.
    """
    at, bit = BITS[kind]
    if not kind.startswith(("base offset", "epoch")) or "negative" in kind:
        return True
    value = 2 * number if at < 8 else 3 if number < 4 else 5
    is_up = not value >> (bit + 8 * (7 - at if at < 8 else 15 - at)) & 1
    return is_up == ("up" in kind) and (kind, number) != ("epoch down", 0)


CASES = [(kind, n) for kind in BITS for n in (0, 1, 2, 5, 6, 8) if _is_case(kind, n)]


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize(("kind", "number"), CASES)
def test_all_commands_name_the_same_bytes_and_offsets(
    tmp_path: Path, places: Places, kind: str, number: int
) -> None:
    at, bit = BITS[kind]
    path = tmp_path / "log"
    file, start, end = places[number]
    flip_bit(file, start + at, bit)
    damage = (str(file), start, end, 2 * number, 2 * number + 2)
    assert named_by_all(path) == [damage]
    assert valid_offsets(path) == [2 * n for n in range(COUNT) if n != number]
    report = verify(path)  # with the index, which is right
    assert report.exit_status == ExitStatus.DAMAGED
    assert [problem.position for problem in report.partitions[0].problems] == [start]


@pytest.mark.parametrize("kind", ["length up", "magic", "crc", "records"])
def test_damage_in_the_last_batch_is_named_too(tmp_path: Path, places: Places, kind: str) -> None:
    at, bit = BITS[kind]
    path = tmp_path / "log"
    file, start, end = places[COUNT - 1]
    flip_bit(file, start + at, bit)
    [(name, position, end_position, first_offset, _)] = named_by_all(path)
    assert (name, position, end_position, first_offset) == (str(file), start, end, 22)
    assert valid_offsets(path) == [2 * n for n in range(COUNT - 1)]


def test_several_damages_are_each_named_and_what_lies_between_them_is_shown(
    tmp_path: Path, places: Places
) -> None:
    path = tmp_path / "log"
    for number, at, bit in [(1, 4, 0), (3, 65, 2), (4, 11, 1), (7, 4, 0), (9, 16, 0)]:
        flip_bit(places[number][0], places[number][1] + at, bit)
    (_, one, one_end), (_, three, _), (_, _, four_end) = places[1], places[3], places[4]
    (_, seven, seven_end), (_, nine, nine_end) = places[7], places[9]
    first, second = str(places[0][0]), str(places[6][0])
    assert named_by_all(path) == [
        (first, one, one_end, 2, 4), (first, three, four_end, 6, 10),
        (second, seven, seven_end, 14, 16), (second, nine, nine_end, 18, 20),
    ]  # fmt: skip
    assert valid_offsets(path) == [0, 4, 10, 12, 16, 20, 22]


def test_one_file_of_a_partition_is_judged_as_with_its_neighbours(
    tmp_path: Path, places: Places
) -> None:
    file, start, end = places[5]  # the last batch of a sealed segment
    flip_bit(file, start + 4, 0)
    [problem] = verify(file).partitions[0].problems
    assert (problem.position, problem.end_position, problem.next_offset) == (start, end, 12)


@pytest.mark.slow
def test_the_command_line_shows_damage_goes_on_and_fails(tmp_path: Path, places: Places) -> None:
    path = tmp_path / "log"
    file, start, end = places[2]
    flip_bit(file, start + 4, 0)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kstore", "log", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    shown = run("dump", str(path), "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    [damage] = [row for row in rows if row["type"] == "damage"]
    reason = f"base offset 16777220 in bytes {start} to {start + 7}, expected 4"
    assert damage == {
        "type": "damage", "segment": str(file), "position": start, "end_position": end,
        "first_offset": 4, "next_offset": 6, "kind": "NOT_MONOTONIC", "detail": reason,
    }  # fmt: skip
    valid = [row["base_offset"] for row in rows if row.get("is_valid")]
    assert valid == [0, 2, *range(6, 24, 2)]
    assert shown.returncode == 1
    [line] = [line for line in run("dump", str(path)).stdout.splitlines() if "DAMAGE" in line]
    told = f"bytes {start} to {end - 1} hide offsets 4 to 5: {reason}"
    assert line.split() == f"{start} DAMAGE NOT_MONOTONIC: {told}".split()
    checked = run("verify", str(path))
    assert checked.returncode == 1
    assert f"{file} at byte {start}: NOT_MONOTONIC: {told}" in checked.stdout


def test_what_changes_while_it_is_read_is_told(tmp_path: Path, places: Places) -> None:
    path = tmp_path / "log"
    file, start, _ = places[2]
    items = dump(path)
    next(items)  # the segment's line: it has been surveyed
    flip_bit(file, start + 65, 2)
    assert [item.kind for item in items if isinstance(item, DumpedDamage)] == ["BAD_CRC"]
