"""The marks of a test that asks a live Kafka: `make test-all` runs it, and so does CI."""

from __future__ import annotations

import pytest

LIVE_KAFKA = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough]
