"""Damaged segments, of any kind: a wrong record is never returned, what is missing is told, and no
offset is given again. Each directory is examined in a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.segments.damaged_dirs import DAMAGES, SEEDS, findings


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_befalls_a_segment_no_record_is_wrong_and_no_loss_is_silent(
    tmp_path: Path, kind: str, seeds: range
) -> None:
    assert findings(tmp_path, "*/*.log", kind, seeds) == []
