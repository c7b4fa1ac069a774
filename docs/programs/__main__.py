"""Runs the programs, and writes them and what they printed into their pages."""

from __future__ import annotations

from docs.programs.pages import PAGES, output, with_blocks

if __name__ == "__main__":
    for name, page in PAGES.items():
        page.write_text(with_blocks(name, output(name)), encoding="utf-8")
