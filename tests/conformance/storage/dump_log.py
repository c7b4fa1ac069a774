"""Runs Kafka's DumpLogSegments on a segment file and parses what it prints into batches and
records. The parser fails on any line of a batch or record that it does not understand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.conformance.kafka_broker import run_tool


class DumpedRecord(NamedTuple):
    """One record as Kafka's tool shows it; sizes are -1 for null; key and payload are its text."""

    offset: int
    timestamp_ms: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]
    key: str | None
    payload: str | None


class DumpedBatch(NamedTuple):
    """One batch header as Kafka's tool shows it, with its records."""

    base_offset: int
    last_offset: int
    count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    position: int
    timestamp_ms: int
    size_bytes: int
    codec: str
    crc: int
    is_valid: bool
    is_transactional: bool
    is_control: bool
    records: list[DumpedRecord]


_BATCH = re.compile(
    r"baseOffset: (\S+) lastOffset: (\S+) count: (\S+) baseSequence: (\S+) lastSequence: \S+ "
    r"producerId: (\S+) producerEpoch: (\S+) partitionLeaderEpoch: (\S+) isTransactional: (\S+) "
    r"isControl: (\S+) deleteHorizonMs: \S+ position: (\S+) (?:Create|LogAppend)Time: (\S+) "
    r"size: (\S+) magic: 2 compresscodec: (\S+) crc: (\S+) isvalid: (\S+)$"
)
_RECORD = re.compile(
    r"\| offset: (\S+) (?:Create|LogAppend)Time: (\S+) keySize: (\S+) valueSize: (\S+) "
    r"sequence: (\S+) headerKeys: \[(.*?)\](?: endTxnMarker: \S+ coordinatorEpoch: \S+)?"
    r"(?: key: (.*?))?(?: payload: (.*))?$"
)


def _batch(match: re.Match[str]) -> DumpedBatch:
    text = match.groups()
    base, last, count, sequence, pid, epoch, leader_epoch = (int(part) for part in text[:7])
    position, timestamp_ms, size = (int(part) for part in text[9:12])
    return DumpedBatch(
        base, last, count, pid, epoch, sequence, leader_epoch, position, timestamp_ms, size,
        text[12], int(text[13]), text[14] == "true", text[7] == "true", text[8] == "true", [],
    )  # fmt: skip


def _record(match: re.Match[str]) -> DumpedRecord:
    offset, timestamp_ms, key_size, value_size, sequence = (int(p) for p in match.groups()[:5])
    header_keys = tuple(name for name in match.group(6).split(",") if name)
    key = match.group(7) if key_size >= 0 else None
    payload = match.group(8) if value_size >= 0 else None
    return DumpedRecord(
        offset, timestamp_ms, key_size, value_size, sequence, header_keys, key, payload
    )


def dump_segment(path: Path, *, max_message_bytes: int = 32 << 20) -> list[DumpedBatch]:
    """Every batch of the file with every record in it, as `DumpLogSegments --deep-iteration`
    says.
    """
    args = ["--files", str(path), "--deep-iteration", "--print-data-log"]
    done = run_tool("kafka-dump-log", [*args, "--max-message-size", str(max_message_bytes)])
    batches: list[DumpedBatch] = []
    for line in done.stdout.splitlines():
        if found := _BATCH.match(line):
            batches.append(_batch(found))
        elif found := _RECORD.match(line):
            batches[-1].records.append(_record(found))
        elif line.strip() and not line.startswith(("Dumping ", "Log starting offset: ")):
            raise ValueError(f"DumpLogSegments said of {path.name}: {line}\n{done.stderr}")
    return batches
