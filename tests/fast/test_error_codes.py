"""Error codes: kstore/errors/codes.py has them all, error_codes.pxd the same numbers for C."""

from __future__ import annotations

import re
from pathlib import Path

from kstore._fast.record.batch import STATUS_NAMES, InvalidBatchError
from kstore.errors import ErrorCode

FAST = Path(__file__).resolve().parents[2] / "kstore" / "_fast"
HOME = FAST / "error_codes.pxd"
CODES = {name: value for name, value in vars(ErrorCode).items() if name.isupper()}


def constants(path: Path) -> list[tuple[str, int]]:
    """The numbers that a file's enums give to names."""
    rows = re.findall(
        r"^ +([A-Z][A-Z_]+) = (-?\d+)\b", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [(name, int(value)) for name, value in rows]


def test_the_codes_of_compiled_modules_are_those_of_the_table() -> None:
    found = constants(HOME)
    assert found
    assert found == sorted(dict(found).items(), key=lambda row: row[1])
    assert {name: CODES.get(name) for name, _ in found} == dict(found)


def test_no_other_compiled_module_gives_an_error_code_a_number() -> None:
    others = [p for p in FAST.rglob("*") if p.suffix in {".pyx", ".pxd"} and p != HOME]
    assert others
    assert [(p.name, n) for p in others for n, _ in constants(p) if n in CODES] == []


def test_a_bad_batch_has_the_code_of_what_is_wrong_with_it() -> None:
    found = {
        name: InvalidBatchError(status, 0).error_code for status, name in enumerate(STATUS_NAMES)
    }
    assert found == {
        "OK": ErrorCode.NONE,
        "TRUNCATED": ErrorCode.CORRUPT_MESSAGE,
        "BAD_LENGTH": ErrorCode.CORRUPT_MESSAGE,
        "BAD_MAGIC": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        "BAD_CRC": ErrorCode.CORRUPT_MESSAGE,
        "BAD_ATTRIBUTES": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "BAD_COUNT": ErrorCode.INVALID_RECORD,
        "BAD_OFFSET_DELTA": ErrorCode.INVALID_RECORD,
        "BAD_TIMESTAMP": ErrorCode.INVALID_TIMESTAMP,
        "BAD_RECORD": ErrorCode.INVALID_RECORD,
        "BAD_PRODUCER": ErrorCode.INVALID_RECORD,
        "BAD_COMPRESSION": ErrorCode.INVALID_RECORD,
        "NOT_MONOTONIC": ErrorCode.INVALID_PRODUCE_OFFSET,
        "TOO_LARGE": ErrorCode.MESSAGE_TOO_LARGE,
    }
