"""Transactions: open ones first, starting with the oldest."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response

from kstore.console.pages.page import Page

__all__ = ["transactions"]

OPEN = {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
MAX_DESCRIBED = 1000


async def transactions(page: Page) -> Response:
    """GET /ui/transactions."""
    listed = await page.admin.list_transactions()
    wanted, only_open = page.text("q"), page.text("open") == "1"
    listed = [each for each in listed if wanted.lower() in each.transactional_id.lower()]
    listed.sort(key=lambda each: each.state not in OPEN)
    ids = [each.transactional_id for each in listed[:MAX_DESCRIBED]]
    described = await page.admin.describe_transactions(ids, raise_errors=False)
    now_ms = time.time() * 1000
    rows: list[dict[str, Any]] = [
        {
            "listing": each,
            "details": described.get(each.transactional_id),
            "open": each.state in OPEN,
            "age": _age(described.get(each.transactional_id), now_ms),
        }
        for each in listed
        if each.state in OPEN or not only_open
    ]
    rows.sort(key=_oldest_first)
    oldest = rows[0] if rows and rows[0]["open"] else None
    return page.render(
        "transactions.html", title="Transactions", found=page.rows(rows), q=wanted,
        only_open=only_open, oldest=oldest, total_open=sum(bool(row["open"]) for row in rows),
    )  # fmt: skip


def _oldest_first(row: dict[str, Any]) -> tuple[bool, float]:
    return not row["open"], -(row["age"] or 0.0)


def _age(details: object, now_ms: float) -> float | None:
    start = getattr(details, "start_time_ms", -1)
    return max(now_ms - start, 0.0) / 1000 if start >= 0 else None
