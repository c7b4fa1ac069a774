"""A real Chromium, if the machine has one. Playwright controls it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WHY = "there is no Chromium: apt-get install chromium"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; without one the test is skipped."""
    if PROGRAM is None:
        pytest.skip(WHY)
    with sync_playwright() as playwright:
        # In a container its sandbox would need rights that tests do not have.
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
