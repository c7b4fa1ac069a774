"""``kstore scan``: the records that a topic has now, as a table, JSON, CSV or Parquet. It reads
batches as `kstore.scan` does; scan_output.py writes them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from kstore.cli import completion
from kstore.cli.arguments import one_of, parse_datetime_ms
from kstore.cli.client_config import DEFAULT_SERVERS, client_config
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.output import Output
from kstore.cli.records.read_options import IsolationLevel, Partitions
from kstore.cli.records.scan_output import WRITERS

if TYPE_CHECKING:
    import pyarrow

__all__ = ["EXAMPLE", "scan"]

EXAMPLE = (
    "Example: kstore scan orders --start-time 2026-11-01 --columns offset,key,value "
    "--to orders.parquet"
)
TABLE_ROWS = 100
_SKIP = re.compile("(Pass|pass) fail_on_data_loss=False")
_USE = {"Pass": "Use --on-loss skip", "pass": "use --on-loss skip"}
_ENDINGS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}


class ScanError(Exception):
    """The errors of a scan, in the words of the command line."""


Topic = Annotated[
    str | None,
    typer.Argument(
        help="The topic; by default the only one of the folder or the cluster.",
        autocompletion=completion.topics,
    ),
]
Path = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Read this log dir or archive, not a cluster. No broker is needed."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Some of partition, offset, timestamp, key, value, headers. Default: all of them.",
    ),
]
StartOffset = Annotated[int | None, typer.Option(min=0, help="The first offset of each partition.")]
EndOffset = Annotated[int | None, typer.Option(min=0, help="Stop before this offset.")]
StartTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Records from this moment on: ISO 8601 (UTC if it has no zone), or milliseconds "
        "since 1970.",
    ),
]
EndTime = Annotated[str | None, typer.Option(metavar="TIME", help="Records before this moment.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=0,
        help=f"Stop after this many records; 0: no limit. Default: {TABLE_ROWS} for a table on the "
        "screen, else 0. A table is written when it is complete, and is kept in memory until then.",
    ),
]  # fmt: skip
OnLoss = Annotated[
    str,
    typer.Option(
        help="fail or skip, if records were deleted or damaged before they could be read."
    ),
]
To = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write to this file. It appears when it is complete."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", metavar="table|json|csv|parquet",
        help="Default: by the extension of --to (.parquet, .csv, .json, .jsonl), else table.",
    ),
]  # fmt: skip


def scan(
    topic: Topic = None,
    path: Path = None,
    partition: Partitions = None,
    columns: Columns = None,
    start_offset: StartOffset = None,
    end_offset: EndOffset = None,
    start_time: StartTime = None,
    end_time: EndTime = None,
    limit: Limit = None,
    on_loss: OnLoss = "fail",
    to: To = None,
    form: Format = None,
    json: Json = False,
    isolation: IsolationLevel = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:
    """Write the records that exist now to stdout or to a file.

    In JSON, a key or value that is not UTF-8 is in key_base64 or value_base64. In CSV, a null is
    empty. Parquet has the types of kstore.scan in Python.
    """
    import kstore

    if path is not None and (bootstrap or properties or profile):
        raise typer.BadParameter("--path reads files: omit -b, -X and --profile")
    fails = one_of("--on-loss", on_loss, "fail", "skip") == "fail"
    named = _format(form, to, json)
    config = None
    if path is None:
        config = client_config("consumer", bootstrap, properties, profile)
        config.setdefault("bootstrap.servers", DEFAULT_SERVERS)
    shown = named == "table" and to is None
    most = limit if limit is not None else TABLE_ROWS if shown else 0
    try:
        with _worded():
            found = kstore.scan(
                path, topic, config=config, partitions=partition,
                columns=None if columns is None else [name.strip() for name in columns.split(",")],
                start_offset=start_offset, end_offset=end_offset,
                start_time=None if start_time is None else parse_datetime_ms(start_time),
                end_time=None if end_time is None else parse_datetime_ms(end_time),
                isolation=isolation, fail_on_data_loss=fails,
            )  # fmt: skip
            reader = (found.for_rows(most) if most else found).to_reader()
    except (ImportError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    with _worded(), _output(to) as out:
        written = WRITERS[named](_limited(reader, most), found.columns, out)
    if to is not None:
        Output(json).print({"records": written, "file": to}, f"{written} records in {to}")
    elif shown and limit is None and written == TABLE_ROWS:
        print(f"at most {TABLE_ROWS} records are shown; --limit 0 shows all", file=sys.stderr)


def _format(form: str | None, to: str | None, json: bool) -> str:
    """The name of a writer. Raises typer.BadParameter."""
    ending = "" if to is None else os.path.splitext(to)[1].lower()
    named = form or _ENDINGS.get(ending) or ("json" if json else "table")
    one_of("--format", named, *WRITERS)
    if named == "parquet" and to is None:
        raise typer.BadParameter("--format parquet needs --to FILE")
    return named


@contextmanager
def _worded() -> Iterator[None]:
    """The error's advice with the command's option. Arrow turns errors into OSError."""
    try:
        yield
    except Exception as error:
        text = _SKIP.sub(lambda found: _USE[found[1]], str(error))
        if text == str(error):
            raise
        raise ScanError(text) from error


@contextmanager
def _output(to: str | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that gets its name when it is complete and durable. A device, a pipe or
    anything else that is not a regular file is written directly.
    """
    if to is None:
        yield sys.stdout.buffer
        return
    if os.path.exists(to) and not os.path.isfile(to):
        with open(to, "wb") as out:
            yield out
        return
    to = os.path.realpath(to)
    partial = f"{to}.{os.getpid()}.part"
    with open(partial, "xb") as out:
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            os.replace(partial, to)
        except BaseException:
            os.remove(partial)
            raise


def _limited(reader: pyarrow.RecordBatchReader, most: int) -> Iterator[pyarrow.RecordBatch]:
    """The batches, with at most so many rows; 0: all."""
    left = most
    for batch in reader:
        yield batch.slice(0, left) if most else batch
        left -= batch.num_rows
        if most and left <= 0:
            return
