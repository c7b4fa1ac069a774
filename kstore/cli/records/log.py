"""``kstore log``: show segment files without a broker. kstore.log.offline does the work."""

from __future__ import annotations

import json as json_text
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.failure import fail, guarded
from kstore.cli.options import Json

if TYPE_CHECKING:
    from kstore.log.offline.dump import DumpedBatch, DumpedRecord
    from kstore.log.offline.verify import PartitionReport

__all__ = ["app", "dump", "verify"]

app = typer.Typer(help="Show and check segment files, offline.", no_args_is_help=True)

Files = Annotated[
    Path, typer.Argument(help="A .log file, a partition's folder, or a whole log dir.")
]


@app.command(epilog="Example: kstore log dump data/orders-0 --records")
@guarded
def dump(
    path: Files,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show every record too.")
    ] = False,
    start_offset: Annotated[int, typer.Option(help="The first offset to show.")] = 0,
    end_offset: Annotated[int | None, typer.Option(help="Show offsets below this one.")] = None,
    key: Annotated[str | None, typer.Option(help="Show only records with this key.")] = None,
    json: Json = False,
) -> None:
    """Show the batches in segment files, and with --records their records."""
    from kstore.log.offline.dump import as_dict
    from kstore.log.offline.dump import dump as walk

    wanted = None if key is None else key.encode()
    write = sys.stdout.write
    damaged = False
    try:
        for item in walk(
            path, records=records or key is not None, start_offset=start_offset,
            end_offset=end_offset, key=wanted,
        ):  # fmt: skip
            damaged = damaged or type(item).__name__ == "DumpedDamage"
            write((json_text.dumps(as_dict(item)) if json else _line(item)) + "\n")
    except ValueError as error:
        raise SystemExit(fail(str(error))) from None
    if damaged:
        sys.stdout.flush()
        raise SystemExit(fail(f"{path} has damage, shown above"))


def _line(item: Any) -> str:
    kind = type(item).__name__
    if kind == "DumpedSegment":
        return f"{item.segment}  {item.size_bytes:,} bytes"
    if kind == "DumpedBatch":
        return _batch_line(item)
    if kind == "DumpedRecord":
        return _record_line(item)
    return f"  {item.position:>10}  DAMAGE {item}"


def _batch_line(batch: DumpedBatch) -> str:
    parts = [
        f"  {batch.position:>10}  offsets {batch.base_offset}..{batch.last_offset}",
        f"{batch.count} records",
        f"{batch.size} bytes",
        batch.compression_codec,
        f"epoch {batch.partition_leader_epoch}",
        f"{batch.timestamp_type} {batch.create_time}",
    ]
    if batch.producer_id >= 0:
        sequences = f"{batch.base_sequence}..{batch.last_sequence}"
        parts.append(f"producer {batch.producer_id}/{batch.producer_epoch} sequences {sequences}")
    parts += ["transactional"] * batch.is_transactional + ["control"] * batch.is_control
    parts += [f"crc {batch.crc:08x}"] + ["INVALID"] * (not batch.is_valid)
    return ", ".join(parts)


def _record_line(record: DumpedRecord) -> str:
    if record.control is not None:
        return f"  {'':>10}    {record.offset}  {record.timestamp}  {record.control} marker"
    headers = "".join(f" {name}={_text(value)}" for name, value in record.headers)
    content = f"{_text(record.key)}: {_text(record.value)}{headers}"
    return f"  {'':>10}    {record.offset}  {record.timestamp}  {content}"


def _text(data: bytes | None) -> str:
    """Format bytes on one line: text unchanged, other bytes escaped."""
    return "null" if data is None else data.decode("utf-8", "backslashreplace").encode(
        "unicode_escape"
    ).decode("ascii")  # fmt: skip


@app.command(epilog="Example: kstore log verify data")
@guarded
def verify(
    path: Files,
    records: Annotated[bool, typer.Option(help="Check every record, not only the batches.")] = True,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair damage; the damaged bytes are kept in copies.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: only show what would be done.")
    ] = False,
    json: Json = False,
) -> None:
    """Check every batch: checksum, framing, offsets, epochs. Exit code 1 if there is damage.

    --repair restores header fields whose values follow from the neighbouring batches, and removes
    all other damage. Stop the broker first. The exit code is then 1 if damage is left. With
    --dry-run it is 1 if there is something to repair.
    """
    if repair:
        _repair(path, dry_run=dry_run, json=json)
        return
    if dry_run:
        raise SystemExit(fail("--dry-run needs --repair"))
    from kstore.log.offline.verify import verify as check

    try:
        report = check(path, records=records)
    except ValueError as error:
        raise SystemExit(fail(str(error))) from None
    for partition in report.partitions:
        if json:
            print(json_text.dumps(_plain(partition)))
        else:
            _print_partition(partition)
    sys.stdout.flush()
    if report.exit_status:
        raise SystemExit(fail(f"{path} is damaged: {report.problem_count} problems"))


def _repair(path: Path, *, dry_run: bool, json: bool) -> None:
    from kstore.log import open_log_dir
    from kstore.log.errors import LogDirLockedError
    from kstore.log.offline.repair import repair as put_right

    try:
        done = put_right(path, dry_run=dry_run, open_dir=open_log_dir)
    except ValueError as error:
        raise SystemExit(fail(str(error))) from None
    except LogDirLockedError as error:
        raise SystemExit(fail(error.for_commands)) from None
    for each in done:
        row = {key: value for key, value in asdict(each).items() if key != "restored"}
        if json:
            print(json_text.dumps(row | {"dry_run": dry_run}))
            continue
        would = "would " if dry_run else ""
        print(f"{each.segment} at byte {each.position}: {each.reason}")
        print(f"  {would}{each.action}: {each.detail}; copy of the original: {each.copy}")
    if not json:
        print(f"{len(done)} repairs{' would be made' if dry_run else ' made'}")
    sys.stdout.flush()
    if dry_run and done:
        raise SystemExit(fail(f"{path} is damaged: run it without --dry-run to repair it"))
    if not dry_run:
        from kstore.log.offline.verify import verify as check

        left = check(path, index=False)
        if left.exit_status:
            raise SystemExit(
                fail(f"{path} still has {left.problem_count} problems: see `kstore log verify`")
            )


def _plain(partition: PartitionReport) -> dict[str, Any]:
    found = asdict(partition)
    if partition.topic_partition is not None:
        found["topic_partition"] = str(partition.topic_partition)
    return found


def _print_partition(partition: PartitionReport) -> None:
    print(
        f"{partition.topic_partition or partition.name}: offsets {partition.log_start_offset} to "
        f"{partition.log_end_offset}, {partition.records:,} records in {partition.batches:,} "
        f"batches and {partition.segments} segments, {partition.size_bytes:,} bytes: "
        + (f"{partition.problem_count} problems" if partition.problem_count else "good")
    )
    for problem in partition.problems:
        mended = " (a torn tail: opening the log cuts it off)" if problem.is_torn_tail else ""
        print(f"  {problem}{mended}")
