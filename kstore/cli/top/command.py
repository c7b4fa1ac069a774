"""The command ``kstore top``: live at a terminal, lines in a pipe, JSON."""

from __future__ import annotations

import json as json_text
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from kstore.cli import completion
from kstore.cli.client_config import client_config
from kstore.cli.failure import fail
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.top.http_pages import HttpPageError
from kstore.cli.top.sample import Sample, rows_between
from kstore.cli.top.screen import SORTS, Order, screen_lines
from kstore.errors import KafkaError

__all__ = ["EXAMPLE", "top"]

EXAMPLE = (
    "Example: kstore top -b localhost:9092 --http http://127.0.0.1:8080   (at a terminal); "
    "kstore top --once --json | jq .topics   (in a script)"
)
TOKEN = "KSTORE_HTTP_TOKEN"
PIPE_WIDTH = 120


def top(
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A broker's kstore.http.listener, for its CPU, bytes, requests and loop holds; "
            f"may be repeated. {TOKEN} is its token.",
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two samples.")] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after this many samples.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one interval as lines, and exit.")
    ] = False,
    sort: Annotated[
        str,
        typer.Option(
            autocompletion=completion.words(*SORTS),
            help="Sort topics and groups by rate, lag, size or name.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Show what brokers, topics and groups do: rates, lag, CPU and loop holds. At a terminal it is
    live, and q quits. In a pipe it writes lines, or one object per interval with --json.
    """
    if sort and sort not in SORTS:
        raise typer.BadParameter(f"--sort {sort!r} is not one of {', '.join(SORTS)}")
    from kstore.cli.top.sampler import Sampler
    from kstore.clients import AdminClient

    order = Order()
    if sort:
        order.choose(sort)
    with AdminClient(client_config("admin", bootstrap, properties, profile)) as admin:
        take = Sampler(admin, http or (), os.environ.get(TOKEN)).take
        if json or once or not sys.stdout.isatty():
            _write(take, interval, order, 1 if once else count, as_json=json)
        else:
            from kstore.cli.top.terminal import watch

            watch(take, interval, order, count)


def _write(
    take: Callable[[], Sample], interval_s: float, order: Order, count: int | None, *, as_json: bool
) -> None:
    """Print lines, or an object per line, for each interval. An error of the first samples stops
    the command; a later error is reported on stderr.
    """
    before, written = take(), 0
    due_s = before.monotonic_s
    while count is None or written < count:
        due_s = max(due_s + interval_s, time.monotonic())
        time.sleep(max(due_s - time.monotonic(), 0))
        try:
            after = take()
        except (KafkaError, HttpPageError, OSError) as problem:
            if not written:
                raise
            fail(str(problem))
            continue
        rows = rows_between(before, after)
        if as_json:
            print(json_text.dumps(rows), flush=True)
        else:
            width = shutil.get_terminal_size((PIPE_WIDTH, 0)).columns
            lines = screen_lines(rows, order, width, None)
            print("\n".join(line.text for line in lines), end="\n\n", flush=True)
        before, written = after, written + 1
