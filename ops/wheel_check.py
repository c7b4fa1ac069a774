"""Checks that wheels can be released: at most 3 MB (or the second argument, in bytes), and tagged
by auditwheel or delocate for a platform that PyPI accepts. `make wheel` runs it; exit code 1 if
not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST_BYTES = 3_000_000
PLATFORM = re.compile(r"-cp3\d+-cp3\d+t?-(manylinux_\d+_\d+_\w+|macosx_\d+_\d+_\w+)(\.\w+)*\.whl$")


def problems(folder: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """What prevents a release of the wheels in this folder, a sentence each."""
    wheels = sorted(folder.glob("*.whl"))
    result = [] if wheels else [f"{folder} has no wheel"]
    for wheel in wheels:
        if (size_bytes := wheel.stat().st_size) > most_bytes:
            result.append(f"{wheel.name} has {size_bytes} bytes, more than {most_bytes}")
        if not PLATFORM.search(wheel.name):
            result.append(f"{wheel.name} is not for a platform that PyPI takes")
    return result


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    print("\n".join(found) or "the wheels can be released")
    sys.exit(bool(found))
