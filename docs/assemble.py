"""Collects the pages of the site in build/docs, for `make docs`: those in docs/, and those that are
beside what they describe (each room's README, the files at the root).

Links between files of the repository work on the site too: a link to a file that is a page becomes
a link to that page, and any other link becomes the file's path. A broken link is an error.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
ROOMS = {
    "broker": "broker",
    "groups": "broker/state/groups",
    "transactions": "broker/runtime/transactions",
    "coordinators": "broker/runtime/coordinators",
    "replication": "broker/runtime/replication",
    "membership": "broker/runtime/membership",
    "controller": "broker/runtime/controller",
    "peers": "broker/runtime/peers",
    "settings": "broker/runtime/metadata",
    "security": "broker/runtime/security",
    "log": "kstore/log",
    "fast": "kstore/_fast",
    "clients": "clients",
    "pipeline": "pipeline",
    "benchmarks": "bench",
}
ELSEWHERE = {f"internals/{name}.md": f"{folder}/README.md" for name, folder in ROOMS.items()} | {
    "skipped.md": "SKIPPED.md",
    "internals/index.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security-policy.md": "SECURITY.md",
}
"""A page's place on the site, and in the repository."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


class BrokenLinkError(Exception):
    """A page links to something that is not there."""


def pages() -> dict[str, str]:
    """Every page: its place on the site, and in the repository."""
    own = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    return {page: f"docs/{page}" for page in own} | ELSEWHERE


def with_links(page: str, text: str, every: dict[str, str]) -> str:
    """The text of a page with links for the site; BrokenLinkError for a link to nothing."""
    source = every[page]
    places = {origin: place for place, origin in every.items()}

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        origin = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if origin in places:
            to = posixpath.relpath(places[origin], posixpath.dirname(page) or ".")
            return f"[{words}]({to}{anchor})"
        if not (ROOT / origin).exists():
            raise BrokenLinkError(f"{source} links to {target}, which is not there")
        return f"`{origin}`" if words.strip("`") == origin else f"{words} (`{origin}`)"

    return LINK.sub(link, text)


def main() -> int:
    """Write all pages; 1 where one has a broken link."""
    shutil.rmtree(SITE, ignore_errors=True)
    every = pages()
    broken = 0
    for page, source in every.items():
        target = SITE / page
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_text(with_links(page, (ROOT / source).read_text("utf-8"), every), "utf-8")
        except BrokenLinkError as problem:
            print(problem, file=sys.stderr)
            broken = 1
    for path in (ROOT / "docs").rglob("*"):
        if path.suffix in {".png", ".svg"}:
            target = SITE / path.relative_to(ROOT / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return broken


if __name__ == "__main__":
    sys.exit(main())
