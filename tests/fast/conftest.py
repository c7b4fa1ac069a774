"""`plane`: the data plane of one test, with the topic `t` of two partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.harness.plane_harness import Plane


@pytest.fixture
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plane]:
    """It is closed at the end of the test. It uses the LIMITS that the file has, if any."""
    plane = Plane(tmp_path, **getattr(request.module, "LIMITS", {}))
    yield plane
    plane.close()
