"""The owner of a log dir's files: only the owner can read the lock, the index and the other files,
and symbolic links to other users' files are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.log.errors import LogStorageError

PRIVATE = (".lock", ".kstore.mdb", ".kstore.mdb-lock")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """The most careless one."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_log_dir_is_made_for_its_user_alone(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "new" / "log") as log:
        log.append(b"x")
    assert mode(tmp_path / "new" / "log") == 0o700
    assert [mode(tmp_path / "new" / "log" / name) for name in PRIVATE] == [0o600] * 3


def test_files_that_others_could_read_are_made_private_and_the_folder_keeps_its_mode(
    tmp_path: Path,
) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append(b"x")
    tmp_path.chmod(0o755)
    for name in PRIVATE:
        (tmp_path / name).chmod(0o666)
    with kstore.open_log(tmp_path) as log:
        assert [record.value for record in log.records()] == [b"x"]
    assert [mode(tmp_path / name) for name in PRIVATE] == [0o600] * 3
    assert mode(tmp_path) == 0o755, "who may read records is for its user to say"


@pytest.mark.parametrize("name", PRIVATE)
def test_a_symbolic_link_is_refused_and_what_it_leads_to_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody else's")
    victim.chmod(0o644)
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(LogStorageError, match=rf"{name} is a symbolic link to .*victim"):
        kstore.open_log(folder)
    assert victim.read_bytes() == b"somebody else's"
    assert mode(victim) == 0o644
    (folder / name).unlink()
    with kstore.open_log(folder) as log:
        assert log.append(b"x") == 0


def test_a_reader_follows_no_link_to_an_index(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        with kstore.open_log(tmp_path / name) as log:
            log.append(b"x")
    index = tmp_path / "mine" / ".kstore.mdb"
    index.unlink()
    index.symlink_to(tmp_path / "other" / ".kstore.mdb")
    with pytest.raises(LogStorageError, match="is a symbolic link"):
        kstore.open_log(tmp_path / "mine", read_only=True)


def test_the_lock_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(LogStorageError, match="not of the expected type"):
        kstore.open_log(tmp_path)


def test_a_reader_who_may_not_read_the_index_reads_the_segments(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append(b"x")
    tmp_path.chmod(0o755)
    index = tmp_path / ".kstore.mdb"
    index.unlink()
    index.mkdir()  # root may read every file, but no folder as a file
    with kstore.open_log(tmp_path, read_only=True) as log:
        assert [record.value for record in log.records()] == [b"x"]
