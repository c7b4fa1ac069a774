"""The first page: brokers and their load; and a page for each broker with its log dirs."""

from __future__ import annotations

from starlette.responses import Response

from kstore.clients.admin import LogDirDescription, TopicDescription
from kstore.console.pages.page import Page, PageError
from kstore.errors import KafkaError

__all__ = ["broker", "brokers", "log_dirs"]


async def log_dirs(page: Page) -> tuple[dict[int, dict[str, LogDirDescription]], str]:
    """The log dirs of all brokers; without permission nothing, and the reason."""
    try:
        return await page.admin.describe_log_dirs(), ""
    except KafkaError as error:
        return {}, str(error)


def _counts(topics: list[TopicDescription]) -> dict[str, int]:
    parts = [part for topic in topics for part in topic.partitions]
    return {
        "topics": len(topics),
        "partitions": len(parts),
        "offline": sum(part.leader < 0 for part in parts),
        "under": sum(len(part.isr) < len(part.replicas) for part in parts),
        "elsewhere": sum(0 <= part.leader != part.replicas[0] for part in parts if part.replicas),
    }


async def brokers(page: Page) -> Response:
    """GET /."""
    cluster = await page.admin.describe_cluster()
    topics = await page.admin.describe_topics()
    dirs, no_dirs = await log_dirs(page)
    sampler = page.session.sampler
    parts = [part for topic in topics for part in topic.partitions]
    rows = []
    for each in cluster.brokers:
        own = dirs.get(each.node_id, {})
        rows.append({
            "broker": each,
            "leaders": sum(part.leader == each.node_id for part in parts),
            "replicas": sum(each.node_id in part.replicas for part in parts),
            "behind": sum(
                each.node_id in part.replicas and each.node_id not in part.isr for part in parts
            ),
            "rate": sampler.now("broker-rate", str(each.node_id)),
            "size": sum(r.size_bytes for d in own.values() for r in d.replicas.values())
            if own else None,
            "free": min((d.usable_bytes for d in own.values()), default=None),
            "failed": sum(d.error is not None for d in own.values()),
        })  # fmt: skip
    names = [str(each.node_id) for each in cluster.brokers]
    return page.render(
        "brokers.html", title="Brokers", cluster=cluster, rows=rows, counts=_counts(topics),
        no_dirs=no_dirs,
        rates={f"broker {n}": list(sampler.series("broker-rate", n)) for n in names},
        sizes={f"broker {n}": list(sampler.series("broker-size", n)) for n in names},
    )  # fmt: skip


async def broker(page: Page) -> Response:
    """GET /ui/brokers/ID."""
    number = int(page.name("broker"))
    cluster = await page.admin.describe_cluster()
    found = [each for each in cluster.brokers if each.node_id == number]
    if not found:
        raise PageError(f"no broker {number} is alive", 404)
    try:
        dirs = (await page.admin.describe_log_dirs([number]))[number]
        no_dirs = ""
    except KafkaError as error:
        dirs, no_dirs = {}, str(error)
    topics = await page.admin.describe_topics()
    leads = [
        (topic.name, part) for topic in topics for part in topic.partitions if part.leader == number
    ]
    sampler = page.session.sampler
    return page.render(
        "broker.html", title=f"Broker {number}", broker=found[0], dirs=dirs, no_dirs=no_dirs,
        leads=page.rows(leads), is_controller=cluster.controller_id == number,
        rate={"records": list(sampler.series("broker-rate", str(number)))},
        size={"bytes": list(sampler.series("broker-size", str(number)))},
    )  # fmt: skip
