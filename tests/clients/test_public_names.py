"""The names of kstore.clients, each of which is imported when it is first asked for."""

from __future__ import annotations

import kstore.clients as clients


def test_every_public_name_is_where_the_table_says() -> None:
    assert [name for name in clients.__all__ if getattr(clients, name).__name__ != name] == []
