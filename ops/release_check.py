"""Checks that this commit can be released: it has a tag, and CHANGELOG.md begins with the version
of the tag. `make release-check` runs it; exit code 1 if not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$")


def problems(root: Path = ROOT) -> list[str]:
    """What prevents a release, a sentence each."""
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    heading = next((line for line in changes.splitlines() if line.startswith("## ")), "nothing")
    release = RELEASE.match(heading)
    if release is None:
        return [f"CHANGELOG.md begins with {heading!r}, not with a version and a date"]
    command = ["git", "tag", "--points-at", "HEAD"]
    tags = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    if (tag := f"v{release[1]}") not in tags.split():
        return [f"this commit has no tag {tag}: git tag -s {tag}"]
    return []


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "ready to release")
    sys.exit(bool(found))
