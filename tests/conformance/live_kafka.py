"""The marks of a test that needs a live Kafka: `make test-all` and CI run it."""

from __future__ import annotations

import pytest

LIVE_KAFKA = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough]
