"""A topic's records: from an offset, a time or an end, filtered by key and text; and live."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from kstore.cli.arguments import parse_datetime_ms
from kstore.console.cluster.records import FORMATS, Coding, Position, Shown, Wanted, read, tail
from kstore.console.pages.page import Page, PageError, templates, whole
from kstore.errors import KafkaError
from kstore.types import TopicPartition

__all__ = ["browse", "live"]

MAX_NEWEST = 10_000
"""How many records are read to find the newest over all partitions."""
DEFAULT_COUNT, MAX_COUNT = 50, 500
TAIL_S = 25.0
"""The duration of one response of the live tail; the browser then sends the next request. A
broker's HTTP server closes responses that take longer than 30 s.
"""
STARTS = {
    "latest": "newest", "earliest": "oldest", "offset": "offset", "time": "time (UTC)",
    "at": "continue",
}  # fmt: skip
ISOLATION = ("read_uncommitted", "read_committed")


async def browse(page: Page) -> Response:
    """GET /ui/topics/NAME/records."""
    name = page.name("topic")
    (found,) = await page.admin.describe_topics([name])
    every = [part.partition for part in found.partitions if part.leader >= 0]
    chosen = page.text("partition")
    partitions = every
    if chosen:
        number = whole(chosen, "partition", 0, 0, 2**31 - 1)
        if number not in every:
            raise PageError(f"{name} has no partition {number} with a leader", 404)
        partitions = [number]
    count = page.number("count", DEFAULT_COUNT, 1, MAX_COUNT)
    isolation = page.text("isolation", ISOLATION[0])
    if isolation not in ISOLATION:
        raise PageError(f"isolation is one of {', '.join(ISOLATION)}")
    tps = [TopicPartition(name, index) for index in partitions]
    ends = {
        tp.partition: row.offset
        for tp, row in (
            await page.admin.list_offsets(dict.fromkeys(tps, "latest"), isolation_level=isolation)
        ).items()
    }
    problem, position = "", dict(ends)
    result, took = None, []
    try:
        coding, wanted = _coding(page), _wanted(page)
        position = await _start(page, tps, ends, count)
        is_latest = page.text("from", "latest") == "latest"
        most = MAX_NEWEST if is_latest else count
        result = await read(
            page.session.client, name, position, ends, count=most, coding=coding, wanted=wanted,
            isolation=isolation,
        )  # fmt: skip
        took = sorted(result.rows, key=lambda row: (row.timestamp, row.partition, row.offset))
        if is_latest:
            took = took[::-1][:count]
    except (ValueError, ImportError, KafkaError) as error:
        problem = str(error)
    after = _written(result.position) if result and not result.at_end else ""
    return page.render(
        "records.html", title=f"Records of {name}", topic=name, rows=took, result=result,
        problem=problem, partitions=every, chosen=chosen, formats=FORMATS, starts=STARTS,
        isolations=ISOLATION, count=count, get=page.text,
        next_query=_query(page, after) if after else "", tail_at=_written(ends),
        tail_query=_query(page, None), has_registry=page.settings.registry is not None,
    )  # fmt: skip


def _query(page: Page, at: str | None) -> str:
    """The page's arguments, to continue at a position."""
    given: dict[str, Any] = {"from": "at", "at": at} if at is not None else {}
    url = page.request.url.remove_query_params(["from", "at", "offset", "time"])
    return url.include_query_params(**given).query if given else url.query


def _coding(page: Page) -> Coding:
    return Coding(page.text("key", "auto"), page.text("value", "auto"), page.settings.registry)


def _wanted(page: Page) -> Wanted:
    """The filter: the key equals this text, and key, value or headers contain that text."""
    key, text = page.text("only_key"), page.text("text").lower()

    def wanted(row: Shown) -> bool:
        if key and row.key != key:
            return False
        if not text:
            return True
        fields = [row.key or "", row.value or "", *(f"{n}: {v}" for n, v in row.headers)]
        return any(text in field.lower() for field in fields)

    return wanted


async def _start(
    page: Page, tps: list[TopicPartition], ends: dict[int, int], count: int
) -> Position:
    """The start in each partition. Raises ValueError for invalid arguments."""
    way = page.text("from", "latest")
    if way not in STARTS:
        raise ValueError(f"from is one of {', '.join(STARTS)}")
    if way == "at":
        return {k: v for k, v in position_of(page.text("at")).items() if k in ends}
    found = await page.admin.list_offsets(dict.fromkeys(tps, "earliest"))
    starts = {tp.partition: row.offset for tp, row in found.items()}
    if way == "earliest":
        return starts
    if way == "offset":
        wanted = page.number("offset", 0)
        return {k: min(max(wanted, starts[k]), ends[k]) for k in ends}
    if way == "time":
        if not page.text("time"):
            raise ValueError("enter the time to start at")
        moment = _moment(page.text("time"))
        found = await page.admin.list_offsets(dict.fromkeys(tps, moment))
        return {
            tp.partition: row.offset if row.offset >= 0 else ends[tp.partition]
            for tp, row in found.items()
        }
    filtered = page.text("only_key") or page.text("text")
    back = count if not filtered else max(count, 5000 // max(len(tps), 1))
    back = min(back, max(MAX_NEWEST // max(len(tps), 1), 1))
    return {k: max(starts[k], ends[k] - back) for k in ends}


def _moment(text: str) -> int:
    import typer

    try:
        return parse_datetime_ms(text)
    except typer.BadParameter as error:
        raise ValueError(str(error)) from None


def position_of(text: str) -> Position:
    """Parse "0:12,1:7". Raises ValueError."""
    found: Position = {}
    for part in filter(None, text.split(",")):
        index, colon, offset = part.partition(":")
        if not (colon and index.isdecimal() and offset.isdecimal()):
            raise ValueError(f"{text[:80]!r} is not PARTITION:OFFSET,...")
        found[int(index)] = int(offset)
    return found


def _written(position: Position) -> str:
    return ",".join(f"{index}:{offset}" for index, offset in sorted(position.items()))


async def live(page: Page) -> Response:
    """GET /ui/topics/NAME/tail: new records as server-sent events, each with its position as id."""
    name = page.name("topic")
    await page.admin.describe_topics([name])
    try:
        position = position_of(page.request.headers.get("last-event-id") or page.text("at"))
        coding, wanted = _coding(page), _wanted(page)
    except (ValueError, ImportError) as error:
        raise PageError(str(error)) from None
    isolation = page.text("isolation", ISOLATION[0])
    rows = templates().get_template("record_rows.html")

    async def events() -> AsyncIterator[bytes]:
        yield b"retry: 500\n\n"
        try:
            async for found, at in tail(
                page.session.client, name, position, seconds=TAIL_S, coding=coding, wanted=wanted,
                isolation=isolation,
            ):  # fmt: skip
                page.session.touch()
                html = rows.render(rows=found[::-1], topic=name, csrf="") if found else ""
                yield f"id: {_written(at)}\ndata: {json.dumps(html)}\n\n".encode()
        except KafkaError as error:
            yield f"event: problem\ndata: {json.dumps(str(error))}\n\n".encode()

    return StreamingResponse(events(), media_type="text/event-stream")
