"""A settings file with the paths of the folder that it is restored to."""

from __future__ import annotations

from kstore.backup.settings import restored_settings

BEFORE = rb"""# log.dirs=/in/a/comment
node.id=1
log.dirs=/one,\
  /two
kstore.coordination.dir : /three
listeners = PLAINTEXT://localhost:9092"""


def test_paths_are_new_and_all_else_stays() -> None:
    places = {"log.dirs": "/new\\data", "zookeeper.connect": "zk:2181/x"}
    assert (
        restored_settings(BEFORE, places)
        == rb"""# log.dirs=/in/a/comment
node.id=1
listeners = PLAINTEXT://localhost:9092
log.dirs=/new\\data
zookeeper.connect=zk:2181/x
"""
    )
