"""The pages in docs/: their programs run, and print the output on the page."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from docs.differences import page as differences

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
FOREIGN = re.compile(
    r"\b(?:told|mended|those who|what can't be|has to be said|nobody may|log director(?:y|ies))\b",
    re.IGNORECASE,
)
"""Unusual English, and second words for things that docs/glossary.md names."""
PAGES = {str(page.relative_to(DOCS)): page for page in sorted(DOCS.rglob("*.md"))}


def programs() -> list[tuple[str, str, str]]:
    """(page, program, output) of every program with its output below it. tests/documents tests
    those that need brokers.
    """
    return [
        (name, program, output)
        for name, page in PAGES.items()
        if not name.startswith("documents/")
        for program, output in PROGRAM.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(("page", "program", "output"), programs(), ids=lambda each: each[:40])
def test_programs_print_what_the_page_says(
    page: str, program: str, output: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (output, ""), page


@pytest.mark.parametrize("page", list(PAGES))
def test_links_lead_somewhere(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (PAGES[page].parent / target).exists(), f"{page} links to {target}"


def test_every_page_of_the_site_is_there_and_links_lead_somewhere() -> None:
    assemble = runpy.run_path(str(DOCS / "assemble.py"))
    pages = assemble["pages"]()
    for page, source in pages.items():
        assert assemble["with_links"](page, (ROOT / source).read_text("utf-8"), pages), source
    in_nav = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M))
    assert in_nav == set(pages), "mkdocs.yml names every page"


def test_the_page_of_differences_is_up_to_date() -> None:
    """If this fails: python -m docs.differences."""
    assert (DOCS / "differences.md").read_text(encoding="utf-8") == differences.page()


def test_every_difference_is_told_in_whole_sentences() -> None:
    areas = (*differences.AREAS, *differences.SPARK)
    rows = [row for *_, area in areas for row in area]
    for row in rows:
        assert row.what[-1] != ".", row
        for text in (row.kafka, row.kstore, row.why):
            assert text.endswith("."), row
            assert "\n" not in text, row


@pytest.mark.parametrize("page", sorted(set(PAGES) - {"glossary.md"}))
def test_pages_use_the_usual_words(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if FOREIGN.search(line)]
    assert not found, f"{page}: see docs/glossary.md"
