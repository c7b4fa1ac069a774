"""A page in docs/documents and its program: the page shows the program, and then its output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGES", "Shown", "output", "program", "shown", "with_blocks"]

FOLDER = Path(__file__).parent
PAGES = {page.stem: page for page in sorted((FOLDER.parent / "documents").glob("*.md"))}
BLOCKS = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
TIMEOUT_S = 120


class Shown(NamedTuple):
    """What a page shows."""

    program: str
    output: str


def program(name: str) -> Path:
    """The program of a page."""
    return FOLDER / f"{name.replace('-', '_')}.py"


def shown(name: str) -> Shown:
    """What a page shows."""
    found = BLOCKS.search(PAGES[name].read_text(encoding="utf-8"))
    assert found, f"{name} has no program with its output below it"
    return Shown(found[1], found[2])


def output(name: str) -> str:
    """Run a page's program, and return what it printed; RuntimeError if it failed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program(name))], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode or done.stderr:
        raise RuntimeError(f"{program(name)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def with_blocks(name: str, printed: str) -> str:
    """The page's text with its program as it is, and what it printed."""
    blocks = f"```python\n{program(name).read_text(encoding='utf-8')}```\n\n```text\n{printed}```"
    return BLOCKS.sub(lambda _: blocks, PAGES[name].read_text(encoding="utf-8"), count=1)
