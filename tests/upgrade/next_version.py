"""`kstore serve` as a later release may be: it tells clients and brokers of one version more of
each API than this release knows. Run as a script, with the arguments of `kstore`.
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
