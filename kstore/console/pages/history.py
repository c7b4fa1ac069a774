"""The history of expansions and elections: from the logs' leader epochs, and from this session's
samples.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kstore.console.cluster.admin import ConsoleAdmin
from kstore.console.cluster.records import Coding, read
from kstore.console.pages.page import Page
from kstore.types import TopicPartition

__all__ = ["history", "of_topic"]

MAX_EPOCHS = 20
MAX_PARTITIONS = 500


async def history(page: Page) -> Response:
    """GET /ui/history."""
    topics = await page.admin.describe_topics()
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "elections": sum(max(part.leader_epoch, 0) for part in topic.partitions),
            "newest": max((part.partition_epoch for part in topic.partitions), default=-1),
            "oldest": min((part.partition_epoch for part in topic.partitions), default=-1),
        }
        for topic in topics
    ]
    rows.sort(key=lambda row: (-row["elections"], row["topic"]))
    kind = page.text("kind")
    events = [each for each in reversed(page.session.sampler.events) if kind in {"", each.kind}]
    return page.render(
        "history.html", title="History", found=page.rows(rows), events=events[:200], kind=kind,
        began=page.session.sampler.began,
        kinds=("election", "expansion", "isr", "broker", "topic"),
    )  # fmt: skip


async def of_topic(page: Page) -> Response:
    """GET /ui/topics/NAME/history: expansions of the topic, elections of one partition."""
    name = page.name("topic")
    (found,) = await page.admin.describe_topics([name])
    indexes = [part.partition for part in found.partitions if part.leader >= 0]
    prior = await page.admin.prior_partitions(name, indexes[:MAX_PARTITIONS])
    expansions: dict[int, list[int]] = {}
    for tp, epochs in prior.items():
        expansions.setdefault(len(epochs), []).append(tp.partition)
    chosen = page.number("partition", indexes[0] if indexes else 0, 0, 2**31 - 1)
    elections = []
    if chosen in indexes:
        part = next(part for part in found.partitions if part.partition == chosen)
        elections = await _elections(page, TopicPartition(name, chosen), part.leader_epoch)
    return page.render(
        "topic_history.html", title=f"History of {name}", topic=name, partitions=found.partitions,
        expansions=sorted(expansions.items()), chosen=chosen, elections=elections,
        prior={tp.partition: epochs for tp, epochs in prior.items()}, limit=MAX_EPOCHS,
        events=[e for e in reversed(page.session.sampler.events) if e.what.startswith(name)][:50],
    )  # fmt: skip


async def _elections(page: Page, tp: TopicPartition, current: int) -> list[dict[str, int]]:
    """The leader epochs that the log has records of, the newest first: the first offset of each,
    and the time of its first record (-1: unknown).
    """
    spans = await _spans(page.admin, tp, current)
    found = []
    for epoch, start, end in spans:
        moment = -1
        if start < end:
            first = await read(
                page.session.client, tp.topic, {tp.partition: start}, {tp.partition: end},
                count=1, coding=Coding("hex", "hex", None), wanted=lambda _: True,
            )  # fmt: skip
            moment = first.rows[0].timestamp if first.rows else -1
        found.append({"epoch": epoch, "start": start, "end": end, "time": moment})
    return found


async def _spans(
    admin: ConsoleAdmin, tp: TopicPartition, current: int
) -> list[tuple[int, int, int]]:
    """(epoch, first offset, end), the newest first."""
    starts = await admin.list_offsets({tp: "earliest"})
    ends: list[tuple[int, int]] = []
    requested = current
    while requested >= 0 and len(ends) <= MAX_EPOCHS:
        answer = (await admin.epoch_ends({tp: requested}))[tp]
        if answer.leader_epoch < 0:
            break
        ends.append((answer.leader_epoch, answer.end_offset))
        requested = answer.leader_epoch - 1
    befores = [end for _, end in ends[1:]] + [starts[tp].offset]
    spans = [
        (epoch, max(before, starts[tp].offset), end)
        for (epoch, end), before in zip(ends, befores, strict=True)
    ]
    return spans[:MAX_EPOCHS]
