"""Writes docs/differences.md."""

from __future__ import annotations

from pathlib import Path

from docs.differences.page import page

if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("differences.md").write_text(page(), encoding="utf-8")
