"""Log dirs with one type of damage, each examined in a separate process, so that death by a signal
is noticed. ``python -m tests.log.segments.damaged_dirs FOLDER`` reads lines of JSON (files, kind,
seeds) and writes one for each seed.

The rule: a wrong record is never returned, and a loss is never silent.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log import CorruptLogError, Log, OffsetOutOfRangeError
from kstore.log.settings import LogConfig
from tests.log.handling import in_a_child

SEEDS = [
    pytest.param(range(2), id="few"),
    pytest.param(range(2, 3), id="some", marks=pytest.mark.slow),
    pytest.param(range(3, 17), id="more", marks=pytest.mark.thorough),
]
"""Of the directories of one test."""

PARTITIONS = 3
RECORDS = 400
FIRST_OFFSET = 37  # DeleteRecords has been here: no segment says so
PAGE = 4096


def value_of(partition: int, offset: int) -> bytes:
    """What the record at an offset holds."""
    return b"%d/%d " % (partition, offset) * (1 + offset % 9)


def time_of(offset: int) -> int:
    """A record's timestamp: timestamps do not ascend, so that a lookup by time needs the index."""
    return 1_000_000 + offset // 10 * 100 - offset % 10


def build(path: Path) -> None:
    """A log directory that was closed cleanly, with many segments and pages of index entries."""
    with kstore.open_log_dir(str(path)) as log_dir:
        for partition in range(PARTITIONS):
            config = LogConfig(segment_bytes=20_000, index_interval_bytes=1)
            log = log_dir.log("topic", partition, config=config)
            for offset in range(RECORDS):
                log.append(value_of(partition, offset), timestamp=time_of(offset))
            log.delete_before(FIRST_OFFSET)


# -- damage: what it does to a file's bytes


def flip_bits(data: bytearray, chance: random.Random) -> None:
    """Some bits anywhere."""
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_in_header(data: bytearray, chance: random.Random) -> None:
    """A bit in the first bytes of a page: its number, kind, bounds or first pointers."""
    page = chance.randrange(max(len(data) // PAGE, 1))
    data[min(page * PAGE + chance.randrange(48), len(data) - 1)] ^= 1 << chance.randrange(8)


def flip_in_meta(data: bytearray, chance: random.Random) -> None:
    """A bit in one of the two pages that have the roots of the trees."""
    data[min(chance.randrange(2) * PAGE + chance.randrange(160), len(data) - 1)] ^= (
        1 << chance.randrange(8)
    )


def zero_page(data: bytearray, chance: random.Random) -> None:
    """A page of zeros."""
    page = chance.randrange(max(len(data) // PAGE, 1))
    size = len(data[page * PAGE : (page + 1) * PAGE])
    data[page * PAGE : page * PAGE + size] = bytes(size)


def swap_pages(data: bytearray, chance: random.Random) -> None:
    """Two pages, each in the other's place."""
    one, two = (chance.randrange(max(len(data) // PAGE, 1)) * PAGE for _ in range(2))
    data[one : one + PAGE], data[two : two + PAGE] = (
        data[two : two + PAGE],
        data[one : one + PAGE],
    )


def copy_page(data: bytearray, chance: random.Random) -> None:
    """A page that was written to another's place."""
    one, two = (chance.randrange(max(len(data) // PAGE, 1)) * PAGE for _ in range(2))
    data[one : one + PAGE] = data[two : two + PAGE]


def noise(data: bytearray, chance: random.Random) -> None:
    """A stretch of random bytes."""
    at = chance.randrange(len(data))
    size = min(chance.choice([8, 512, PAGE]), len(data) - at)
    data[at : at + size] = chance.randbytes(size)


def cut(data: bytearray, chance: random.Random) -> None:
    """The file ends early, at any byte or between two pages."""
    size = chance.randrange(len(data))
    del data[size // PAGE * PAGE if chance.random() < 0.5 else size :]


DAMAGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    "bits": flip_bits, "headers": flip_in_header, "metas": flip_in_meta, "zeros": zero_page,
    "swapped": swap_pages, "copied": copy_page, "noise": noise, "cut": cut,
}  # fmt: skip


# -- the examination


def examine_index(path: Path) -> list[str]:
    """What is wrong with a directory whose segments are whole: nothing may be."""
    wrong: list[str] = []
    for end in (RECORDS, RECORDS + 1, RECORDS + 2):
        with kstore.open_log_dir(str(path)) as log_dir:
            for partition in range(PARTITIONS):
                log = log_dir.log("topic", partition, create=False)
                wrong += _compare(log, partition, end)
                if log.append(value_of(partition, end), timestamp=time_of(end)) != end:
                    wrong.append(f"the log did not go on at {end}")
    return wrong


def _compare(log: Log, partition: int, end: int) -> list[str]:
    wrong = []
    if (log.log_start_offset, log.log_end_offset) != (FIRST_OFFSET, end):
        wrong.append(f"{log!r}, expected offsets {FIRST_OFFSET} to {end}")
    for offset in range(FIRST_OFFSET, end):
        record = next(iter(log.read(offset, 1)))
        if (record.offset, record.value) != (offset, value_of(partition, offset)):
            wrong.append(f"read({offset}) gave {record.offset}: {record.value!r}")
    every = [(record.offset, record.value) for record in log.records()]
    if every != [(offset, value_of(partition, offset)) for offset in range(FIRST_OFFSET, end)]:
        wrong.append(f"records() of {partition} differ")
    for time in range(time_of(0), time_of(end) + 200, 37):
        expected = next(
            ((o, time_of(o)) for o in range(FIRST_OFFSET, end) if time_of(o) >= time), None
        )
        found = log.offset_for_timestamp(time)
        if found != expected:
            wrong.append(f"the offset of time {time} was {found}, expected {expected}")
    return wrong


def examine_segments(path: Path) -> list[str]:
    """What is wrong with a log dir with a damaged segment: a record that does not belong to its
    offset, one that is missing without a report, an offset that is assigned again.
    """
    wrong: list[str] = []
    told: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
    for start in range(3):
        with kstore.open_log_dir(str(path)) as log_dir:
            for partition in range(PARTITIONS):
                log = log_dir.log("topic", partition, create=False)
                end = log.log_end_offset
                if end < RECORDS + start:
                    wrong.append(f"{log!r} gives offsets again: it went to {RECORDS + start}")
                wrong += _compare_what_is_left(log, partition, end, told[partition])
                if log.append(value_of(partition, end), timestamp=time_of(end)) != end:
                    wrong.append(f"the log did not go on at {end}")
    return wrong


def _compare_what_is_left(log: Log, partition: int, end: int, told: set[int]) -> list[str]:
    """``told``: the offsets that an error or report has named, in this run or an earlier one."""
    wrong: list[str] = []
    for loss in log.recovery.losses:
        told.update(range(loss.first_offset, loss.next_offset))
    for offset in range(FIRST_OFFSET, end):
        try:
            for record in islice(log.read(offset, 1), 1):
                if record.value != value_of(partition, record.offset):
                    wrong.append(f"read({offset}) gave {record.offset}: {record.value!r}")
                elif record.offset != offset and not told.issuperset(range(offset, record.offset)):
                    wrong.append(f"read({offset}) gave {record.offset}, without a word")
        except CorruptLogError as error:
            told.update(range(error.first_offset, error.next_offset), (offset,))
        except OffsetOutOfRangeError:
            wrong.append(f"{offset} is out of range of {log!r}")
    found = _found_by_records(log, partition, told, wrong)
    silent = set(range(FIRST_OFFSET, end)) - found - told
    if silent:
        wrong.append(f"records() of {partition} left out {sorted(silent)[:5]} without a word")
    for time in range(time_of(0), time_of(end) + 200, 370):
        try:
            place = log.offset_for_timestamp(time)
        except CorruptLogError:
            continue
        if place is not None and (place[1] != time_of(place[0]) or place[1] < time):
            wrong.append(f"the offset of time {time} was {place}")
    return wrong


def _found_by_records(log: Log, partition: int, told: set[int], wrong: list[str]) -> set[int]:
    found: set[int] = set()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            for record in log.records(offset):
                if record.value != value_of(partition, record.offset) or record.offset in found:
                    wrong.append(f"records() gave {record.offset}: {record.value!r}")
                found.add(record.offset)
            break
        except CorruptLogError as error:
            offset = max([offset, error.first_offset, *(each + 1 for each in found)])
            told.update(range(offset, error.next_offset), (offset,))
            offset = max(offset + 1, error.next_offset)
    return found


class Examiner:
    """Reports what is wrong in damaged log dirs, each examined in a separate process. These are
    forked from one process without threads that has imported what they need.
    """

    def __init__(self, folder: Path) -> None:
        build(folder / "original")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.log.segments.damaged_dirs", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def findings(self, files: str, kind: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """What is wrong in directories with damage of a kind in one of the files that match a
        pattern: one directory for each seed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([files, kind, list(seeds)]) + "\n")
        self._process.stdin.flush()
        found = [json.loads(self._process.stdout.readline()) for _ in seeds]
        assert [each["seed"] for each in found] == list(seeds)
        return [each for each in found if each["wrong"]]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def examiner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examiner]:
    """For all tests of a file."""
    started = Examiner(tmp_path_factory.mktemp("damaged"))
    yield started
    started.close()


def _in_a_child(examine: Callable[[Path], list[str]], path: Path) -> list[str]:
    """The result of an examination; how its process died, where it did."""
    result = path.with_suffix(".json")

    def look() -> None:
        logging.basicConfig(filename=path.with_suffix(".txt"), level=logging.WARNING)
        try:
            wrong = examine(path)
        except Exception as error:  # noqa: BLE001 (any of them is a finding)
            wrong = [f"raised {error!r}"]
        result.write_text(json.dumps(wrong), encoding="utf-8")

    status = in_a_child(look)
    if status != 0:
        return [f"the process ended with {status}"]
    return json.loads(result.read_text(encoding="utf-8"))


def _examine(folder: Path, files: str, kind: str, seeds: list[int]) -> None:
    """``files``: a pattern; one of the files that match is damaged."""
    examine = examine_segments if files.endswith(".log") else examine_index
    original = folder / "original"
    for seed in seeds:
        chance = random.Random(seed)
        path = folder / f"{kind}-{seed}"
        shutil.copytree(original, path)
        file = chance.choice(sorted(path.glob(files)))
        data = bytearray(file.read_bytes())
        DAMAGES[kind](data, chance)
        file.write_bytes(data)
        wrong = _in_a_child(examine, path)
        row = {"seed": seed, "file": file.name, "wrong": wrong[:5]}
        print(json.dumps(row), flush=True)
        shutil.rmtree(path)


if __name__ == "__main__":
    for line in sys.stdin:
        _examine(Path(sys.argv[1]), *json.loads(line))
