"""Writes docs/protocol-bytes.md."""

from __future__ import annotations

from pathlib import Path

from docs.extensions.page import page

if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("protocol-bytes.md").write_text(page(), encoding="utf-8")
