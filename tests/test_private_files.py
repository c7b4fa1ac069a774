"""Which folders other users may write to, and which groups belong to one user."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from kstore.private_files import UnsafeFileError, check_folder, others_write

USER = pwd.getpwuid(os.geteuid()).pw_name


def a_group(monkeypatch: pytest.MonkeyPatch, name: str, members: list[str]) -> None:
    """Give every group this name and these members."""
    found = grp.struct_group((name, "x", 5, members))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: found)


@pytest.mark.parametrize(
    ("mode", "name", "members", "refused", "warned"),
    [
        (0o700, "staff", [], False, False),
        (0o750, "staff", [], False, True),
        (0o770, "staff", [], True, True),
        (0o755, USER, [], False, True),
        (0o750, USER, [], False, False),
        (0o770, USER, [], False, False),
        (0o770, USER, [USER], False, False),
        (0o770, USER, ["another"], True, True),
        (0o777, USER, [], True, True),
        (0o1777, USER, [], True, True),
    ],
)
def test_who_counts_as_another(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: int,
    name: str,
    members: list[str],
    refused: bool,
    warned: bool,
) -> None:
    a_group(monkeypatch, name, members)
    tmp_path.chmod(mode)
    problem = others_write(str(tmp_path))
    assert (problem is not None) is refused
    if refused:
        assert f"mode {mode:04o}" in str(problem)
        assert f"chmod 700 {tmp_path}" in str(problem)
        with pytest.raises(UnsafeFileError, match="a secret can't be stored where others"):
            check_folder(str(tmp_path), "a secret")
        return
    warning = check_folder(str(tmp_path), "a secret")
    assert (warning is not None) is warned
    assert warning is None or f"chmod 700 {tmp_path}" in warning


def test_a_folder_of_another_user_is_another_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owner = tmp_path.stat().st_uid
    found = os.stat_result((0o040700, 0, 0, 1, 4711, 4711, 0, 0, 0, 0))
    monkeypatch.setattr(os, "stat", lambda path: found)
    with pytest.raises(UnsafeFileError, match=f"belongs to user 4711: chown {owner} {tmp_path}"):
        check_folder(str(tmp_path), "a secret")
