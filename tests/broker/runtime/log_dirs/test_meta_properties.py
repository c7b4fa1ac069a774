"""broker/runtime/log_dirs/meta_properties.py: a log dir belongs to one broker of one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.broker.runtime.log_dirs.meta_properties import claim_log_dirs
from kstore.log.errors import LogStorageError


def test_a_log_dir_keeps_its_owner(tmp_path: Path) -> None:
    claim_log_dirs([str(tmp_path)], "abc", 1)
    written = (tmp_path / "meta.properties").read_text()
    assert written == "version=0\nbroker.id=1\ncluster.id=abc\n"
    claim_log_dirs([str(tmp_path)], "abc", 1)
    with pytest.raises(LogStorageError, match="belongs to broker 1, and this is broker 2"):
        claim_log_dirs([str(tmp_path)], "abc", 2)
    with pytest.raises(LogStorageError, match="belongs to cluster abc, and this is cluster xyz"):
        claim_log_dirs([str(tmp_path)], "xyz", 1)
    assert (tmp_path / "meta.properties").read_text() == written


def test_what_an_older_version_took_for_the_id_is_no_other_cluster(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=0\nbroker.id=1\ncluster.id=abc (needs kstore.contractions: upgrade)\n")
    claim_log_dirs([str(tmp_path)], "abc", 1)
    with pytest.raises(LogStorageError, match="belongs to cluster abc"):
        claim_log_dirs([str(tmp_path)], "ab", 1)


def test_a_file_of_kafkas_own_counts(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\n#Thu Jan 01\nbroker.id=3\nversion=0\n")
    claim_log_dirs([str(tmp_path)], "abc", 3)
    with pytest.raises(LogStorageError, match="broker 3"):
        claim_log_dirs([str(tmp_path)], "abc", 1)


def test_logs_of_a_broker_that_was_alone_are_not_put_aside(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(LogStorageError, match=r"orders-0, say\): give this broker a folder"):
        claim_log_dirs([str(tmp_path)], "abc", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]


@pytest.mark.parametrize("name", ["meta.properties", "meta.properties.tmp"])
def test_its_file_is_no_link_and_for_its_user_alone(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("somebody else's")
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(LogStorageError, match=f"{name} is a symbolic link"):
        claim_log_dirs([str(folder)], "abc", 1)
    assert victim.read_text() == "somebody else's"
    (folder / name).unlink()
    claim_log_dirs([str(folder)], "abc", 1)
    assert (folder / "meta.properties").stat().st_mode & 0o777 == 0o600
