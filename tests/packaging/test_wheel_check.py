"""Which wheels can be released."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.wheel_check import MOST_BYTES, problems


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("kstore-1.0.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", []),
        ("kstore-1.0.0-cp314-cp314-macosx_13_0_arm64.whl", []),
        (
            "kstore-1.0.0-cp311-cp311-linux_x86_64.whl",
            ["kstore-1.0.0-cp311-cp311-linux_x86_64.whl is not for a platform that PyPI takes"],
        ),
    ],
)
def test_a_wheel_is_for_a_platform_of_pypi(name: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert problems(tmp_path) == found


def test_a_wheel_has_at_most_3_mb(tmp_path: Path) -> None:
    name = "kstore-1.0.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    (tmp_path / name).write_bytes(bytes(MOST_BYTES + 1))
    assert problems(tmp_path) == [f"{name} has 3000001 bytes, more than 3000000"]


def test_a_folder_without_a_wheel_is_no_release(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"{tmp_path} has no wheel"]
