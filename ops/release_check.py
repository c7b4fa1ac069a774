"""Whether this commit can be released: the version is the same in pyproject.toml, in a tag of the
commit and at the top of CHANGELOG.md. `make release-check` runs it; exit code 1 if not.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def problems() -> list[str]:
    """What stands in the way of a release, a sentence each."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    found = HEADING.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    newest = found[1] if found else "nothing"
    result = []
    if newest.split()[0] != version or "not released" in newest:
        result.append(f"CHANGELOG.md begins with {newest}, pyproject.toml has {version}")
    command = ["git", "tag", "--points-at", "HEAD"]
    tags = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if f"v{version}" not in tags.split():
        result.append(f"this commit has no tag v{version}: git tag -s v{version}")
    return result


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "ready to release")
    sys.exit(bool(found))
