"""`kstore serve` as a later release could be: it announces one more version of each API to clients
and brokers than this release knows. Run it as a script, with the arguments of `kstore`.
"""

from __future__ import annotations

import runpy
from typing import Any

from kstore.broker.api.metadata import api_versions

_rows = api_versions._rows


def _raised() -> list[Any]:
    rows = list(_rows())
    for row in rows:
        row.max_version += 1
    return rows


if __name__ == "__main__":
    api_versions._rows = _raised
    runpy.run_module("kstore", run_name="__main__", alter_sys=True)
