"""Writes the pictures."""

from __future__ import annotations

from pathlib import Path

from docs.pictures.stories import PICTURES

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        target = Path(__file__).parents[1] / "documents" / f"{name}.svg"
        target.write_text(picture.svg(), encoding="utf-8")
