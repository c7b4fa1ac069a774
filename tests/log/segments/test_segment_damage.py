"""Damaged segments, of any kind: a wrong record is never returned, what is missing is told, and no
offset is given again. Each directory is examined in a process of its own.
"""

from __future__ import annotations

import pytest

from tests.log.segments.damaged_dirs import DAMAGES, SEEDS, Examiner
from tests.log.segments.damaged_dirs import examiner as examiner  # a fixture


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_befalls_a_segment_no_record_is_wrong_and_no_loss_is_silent(
    examiner: Examiner, kind: str, seeds: range
) -> None:
    assert examiner.findings("*/*.log", kind, seeds) == []
