"""A compacted log for the tests of swaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.retention.swap_model import Model, compacted_once


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A closed log that was compacted once, and its model; tests copy it."""
    path = tmp_path_factory.mktemp("prepared")
    return path, compacted_once(path)
