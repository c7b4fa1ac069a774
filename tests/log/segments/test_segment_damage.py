"""Damaged segments of any kind: a wrong record is never returned, missing records are reported, and
no offset is assigned again. A separate process examines each directory.
"""

from __future__ import annotations

import pytest

from tests.log.segments.damaged_dirs import DAMAGES, SEEDS, Examiner
from tests.log.segments.damaged_dirs import examiner as examiner  # a fixture


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_befalls_a_segment_no_record_is_wrong_and_no_loss_is_silent(
    examiner: Examiner, kind: str, seeds: range
) -> None:
    assert examiner.findings("*/*.log", kind, seeds) == []
