"""Send a record to a topic."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from kstore.cli.records.field_formats import FieldFormat, coder
from kstore.clients import AIOProducer
from kstore.console.pages.page import Page, PageError, path, whole
from kstore.errors import KafkaError

__all__ = ["form", "send"]

FORMATS = tuple(each.value for each in FieldFormat)
DELIVERY_MS = 10_000


async def form(page: Page) -> Response:
    """GET /ui/topics/NAME/produce."""
    return await _shown(page, {})


async def _shown(page: Page, given: dict[str, str], problem: str = "") -> Response:
    name = page.name("topic")
    (found,) = await page.admin.describe_topics([name])
    return page.render(
        "produce.html", 400 if problem else 200, title=f"Produce to {name}", topic=name,
        partitions=[part.partition for part in found.partitions], formats=FORMATS, given=given,
        problem=problem, has_registry=page.settings.registry is not None,
    )  # fmt: skip


async def send(page: Page) -> Response:
    """POST /ui/topics/NAME/produce."""
    name, given = page.name("topic"), dict(page.form)
    try:
        key, value = await asyncio.to_thread(_fields, name, given, page.settings.registry)
        headers = _headers(given.get("headers", ""))
        chosen = given.get("partition", "")
        partition = whole(chosen, "partition", 0, 0, 2**31 - 1) if chosen else None
        settings = {
            **page.session.client,
            "delivery.timeout.ms": DELIVERY_MS,
            "request.timeout.ms": DELIVERY_MS // 2,
            "max.block.ms": DELIVERY_MS,
            "linger.ms": 0,
        }
        settings.pop("default.api.timeout.ms", None)
        async with AIOProducer(settings) as producer:
            delivery = await producer.send(name, value, key, partition, headers=headers)
            offset = await delivery
    except (ImportError, ValueError, PageError, KafkaError) as error:
        return await _shown(page, given, str(error))
    where = f"{name}-{delivery.partition}, offset {offset}"
    return page.done(f"The record was written to {where}.", path("topics", name, "records"))


def _fields(
    topic: str, given: dict[str, str], registry: str | None
) -> tuple[bytes | None, bytes | None]:
    """Key and value as bytes; may request a schema from a registry. Raises ValueError."""
    found: list[bytes | None] = []
    for field in ("key", "value"):
        if given.get(f"{field}_null"):
            found.append(None)
            continue
        form_name = given.get(f"{field}_format", "string")
        if form_name not in FORMATS:
            raise ValueError(f"{form_name!r} is not one of {', '.join(FORMATS)}")
        form = coder(FieldFormat(form_name), field, registry, topic)
        text = given.get(field, "").encode()
        if form is None:
            raise ValueError(f"unknown form {form_name!r}")
        try:
            found.append(form.encode_text(text))
        except ValueError as error:
            raise ValueError(f"the {field} {error}") from None
    return found[0], found[1]


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"the header {line!r} is not NAME: VALUE")
        found.append((name.strip(), value.strip().encode()))
    return found
