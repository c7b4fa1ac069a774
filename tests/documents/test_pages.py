"""The pages in docs/documents: each program runs on real brokers and prints what its page says, and
the pictures are those of docs/pictures. If a page is not up to date: python -m docs.programs, or
docs.pictures.
"""

from __future__ import annotations

import pytest

from docs.pictures.stories import PICTURES
from docs.programs.pages import PAGES, output, program, shown

EACH_PAGE = pytest.mark.parametrize("name", list(PAGES))


@pytest.mark.slow
@pytest.mark.timeout(150)
@EACH_PAGE
def test_the_program_prints_what_its_page_says(name: str) -> None:
    assert output(name) == shown(name).output


@EACH_PAGE
def test_the_page_shows_the_program_as_it_is(name: str) -> None:
    assert shown(name).program == program(name).read_text(encoding="utf-8")


def test_each_page_has_the_picture_that_is_drawn() -> None:
    assert set(PICTURES) == set(PAGES)
    for name, picture in PICTURES.items():
        assert PAGES[name].with_suffix(".svg").read_text(encoding="utf-8") == picture.svg()
        assert f"({name}.svg)" in PAGES[name].read_text(encoding="utf-8")
