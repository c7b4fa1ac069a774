"""Puts the built site into build/site, in a folder for its version, for `make docs`: `0.2` for the
release 0.2.0, `dev` for what is not released. Other versions in build/site stay. The pages' version
menu reads versions.json, and index.html leads to the latest release.
"""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "html"
SITE = ROOT / "build" / "site"
RELEASE = re.compile(r"\d+\.\d+")


def name_of(release: str) -> str:
    """The folder of a version: 0.2 for 0.2.0, dev for 0.2.1.dev5."""
    return "dev" if "dev" in release else ".".join(release.split(".")[:2])


def publish(built: Path, site: Path, release: str) -> None:
    """Move a built site into the folder of its version, and list all versions, newest first."""
    site.mkdir(parents=True, exist_ok=True)
    target = site / name_of(release)
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(built, target)
    releases = [each.name for each in site.iterdir() if RELEASE.fullmatch(each.name)]
    releases.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    names = [*(["dev"] if (site / "dev").exists() else []), *releases]
    latest = releases[0] if releases else "dev"
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == latest else []}
        for name in names
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>kstore</title>'
        f'<meta http-equiv="refresh" content="0; url={latest}/index.html">'
        f'<a href="{latest}/index.html">kstore {latest}</a>\n',
        "utf-8",
    )


if __name__ == "__main__":
    publish(BUILT, SITE, version("kstore"))
    print(f"The site is in {SITE.relative_to(ROOT)}: open index.html")
