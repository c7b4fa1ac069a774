"""Client quotas: by user, client id and address."""

from __future__ import annotations

from starlette.responses import Response

from kstore.clients.admin import QuotaEntity
from kstore.console.pages.page import Page, PageError, path
from kstore.errors import KafkaError

__all__ = ["change", "quotas"]

KEYS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
KINDS = ("user", "client-id", "ip")
DEFAULT = "<default>"


async def quotas(page: Page) -> Response:
    """GET /ui/quotas."""
    problem = ""
    try:
        found = await page.admin.describe_client_quotas()
    except KafkaError as error:
        found, problem = {}, str(error)
    rows = [
        {"entity": dict(entity), "text": _text(entity), "key": key, "value": value}
        for entity, values in sorted(found.items(), key=lambda item: _text(item[0]))
        for key, value in sorted(values.items())
    ]
    return page.render(
        "quotas.html", title="Quotas", found=page.rows(rows), problem=problem, keys=KEYS,
        kinds=KINDS, default=DEFAULT,
    )  # fmt: skip


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name if name is not None else DEFAULT}" for kind, name in entity)


async def change(page: Page) -> Response:
    """POST /ui/quotas: set one, or remove it."""
    form = page.form
    given = {kind: form.get(kind, "").strip() for kind in KINDS}
    entity = tuple(
        (kind, None if name == DEFAULT else name) for kind, name in sorted(given.items()) if name
    )
    if not entity:
        return page.failed("Enter a user, a client id or an address.", path("quotas"))
    key = form.get("key", "")
    if key not in KEYS:
        raise PageError(f"{key!r} is not one of {', '.join(KEYS)}")
    value: float | None = None
    if form.get("action") != "remove":
        try:
            value = float(form.get("value", ""))
        except ValueError:
            return page.failed(f"{form.get('value', '')[:50]!r} is not a number.", path("quotas"))
    try:
        await page.admin.alter_client_quotas({entity: {key: value}})
    except KafkaError as error:
        return page.failed(str(error), path("quotas"))
    what = "was removed" if value is None else f"is {value:g} now"
    return page.done(f"{key} of {_text(entity)} {what}.", path("quotas"))
