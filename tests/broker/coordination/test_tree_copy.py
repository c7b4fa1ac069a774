"""The whole tree, read from one store and put into another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore, read_nodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import Stat, StoreError
from kstore.broker.coordination.tree_copy import TRIES, copy_tree, put_tree

NODES = {"/a": b"1", "/a/b": b"", "/a/b/c": b"\x00\xff", "/d": b"2"}


def filled(store: MemoryStore | LmdbStore) -> None:
    for path, data in NODES.items():
        store.create(path, data)
    store.create("/a/living", b"gone soon", ephemeral=True)


def test_persistent_nodes_come_to_the_other_store(tmp_path: Path) -> None:
    source = MemoryStore()
    filled(source)
    found = copy_tree(source)
    assert found == NODES
    target = LmdbStore(tmp_path / "store")
    folder = {"/log_dir_event_notification": b""}
    put_tree(target, found | folder | {"/log_dir_event_notification/x": b"told"})
    assert copy_tree(target) == NODES | folder
    with pytest.raises(
        StoreError, match="the coordination store is not empty: it has /a, for example"
    ):
        put_tree(target, NODES)
    target.close()


def test_a_folder_is_read_beside_who_has_it_open(tmp_path: Path) -> None:
    with_owner = LmdbStore(tmp_path / "store")
    filled(with_owner)
    with_owner.close()
    assert read_nodes(str(tmp_path / "store")) == NODES
    with pytest.raises(StoreError, match="can't be read"):
        read_nodes(str(tmp_path / "none"))


def test_a_tree_that_changes_at_each_look_is_told() -> None:
    class Busy(MemoryStore):
        looks = 0

        def read_many(self, paths: object) -> list[tuple[bytes, Stat] | None]:
            self.looks += 1
            self.set("/d", b"%d" % self.looks)
            return super().read_many(paths)  # type: ignore[arg-type]

    store = Busy()
    filled(store)
    with pytest.raises(StoreError, match=f"changed during each of {TRIES} attempts"):
        copy_tree(store)
