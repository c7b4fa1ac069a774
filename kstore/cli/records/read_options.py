"""Options of ``kstore consume``: which records to read, and where to start and stop."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli import completion

__all__ = [
    "Count",
    "Exit",
    "Format",
    "FromTimestamp",
    "Group",
    "IsolationLevel",
    "Offset",
    "Partitions",
    "SomeTopic",
    "TopicRegex",
]

SomeTopic = Annotated[
    str | None,
    typer.Argument(
        help="The topic. Use --topic-regex for several.", autocompletion=completion.topics
    ),
]
TopicRegex = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Read all topics whose whole names match, including topics created later. Instead of "
        "TOPIC.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group", "-G", metavar="NAME", autocompletion=completion.groups,
        help=
        "Read as a member of this consumer group: start at the committed offsets, commit what "
        "was written every second and at the end, and leave.",
    ),
]  # fmt: skip
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset", "-o", autocompletion=completion.words("earliest", "latest"),
        help="Where to start: earliest (or beginning; the default), latest (or end), an offset, "
        "-N for the last N of each partition, or @MS for a time in milliseconds since 1970. With "
        "--group only partitions without a committed offset start there.",
    ),
]  # fmt: skip
FromTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Start at the first record at or after this time: ISO 8601 (UTC if it has no "
        "zone), or milliseconds since 1970. Instead of --offset.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        help="Read only this partition; may be repeated.",
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", "-c", min=1, help="Stop after this many records.")
]
Exit = Annotated[
    bool,
    typer.Option(
        "--exit", "-e",
        help=
        "Stop at the end of the topic as it is when the command starts (with --group: when the "
        "group gets its partitions).",
    ),
]  # fmt: skip
Format = Annotated[
    str,
    typer.Option(
        "--format", "-f",
        help="Fields topic, partition, offset, timestamp, key, value, headers in braces. A format "
        "without any of them is kcat's: %t topic, %p partition, %o offset, %k key, %s value, %T "
        "timestamp, %h headers, %K and %S sizes of key and value (-1 for null), %R the latter in 4 "
        r"bytes, %% a %. In both: \n \t \r \0 \xHH.",
    ),
]  # fmt: skip
IsolationLevel = Annotated[
    str | None,
    typer.Option(
        help="read_uncommitted (the default) or read_committed",
        autocompletion=completion.isolation_levels,
    ),
]
