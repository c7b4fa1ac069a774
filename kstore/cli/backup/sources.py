"""Finds what `kstore backup create` backs up: by a cluster's folder, log dirs, settings files, or
the file paths that a running cluster reports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kstore.backup.errors import BackupError
from kstore.backup.source import BrokerSource, Source
from kstore.cli.cluster_folder import ClusterFolder
from kstore.config import BrokerConfig
from kstore.config.properties import parse_properties
from kstore.log.segments.segment_names import parse_directory_name

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import ConfigEntry

__all__ = ["source_of_cluster", "source_of_configs", "source_of_folders"]

STORE_FOLDER = ".coordination"
META = "meta.properties"
STORE_SETTINGS = ("kstore.coordination.dir", "zookeeper.connect")
ReadTree = Callable[[], Mapping[str, bytes]]


def source_of_folders(folders: Sequence[str]) -> Source:
    """A cluster's folder, the log dirs of a single broker, or an embedded log dir."""
    for folder in folders:
        if not os.path.isdir(folder):
            raise BackupError(f"{folder} is not a folder: specify a cluster's folder, or log dirs")
    paths = [os.path.abspath(folder) for folder in folders]
    cluster = ClusterFolder(paths[0]).brokers()
    if cluster:
        if len(paths) > 1:
            raise BackupError(f"{paths[0]} is a cluster's folder: specify only this folder")
        return source_of_configs([str(broker.properties) for broker in cluster])
    own = [path for path in paths if os.path.isdir(os.path.join(path, STORE_FOLDER))]
    if own:
        first = own[0]
        brokers = (BrokerSource(_node_id(first), (first, *[p for p in paths if p != first])),)
        return Source("alone", brokers, _own_tree(first))
    for path in paths:
        if os.path.exists(os.path.join(path, META)):
            raise BackupError(
                f"{path} is a log dir of a broker in a cluster, and its topics and settings are "
                "elsewhere: use the cluster's folder, or its brokers' settings files with --config"
            )
        if not any(parse_directory_name(name) is not None for name in os.listdir(path)):
            raise BackupError(
                f"{path} has no cluster and no logs: specify a cluster's folder (of `kstore "
                "cluster`), or the log dirs of a broker"
            )
    if len(paths) > 1:
        raise BackupError("log dirs without a broker are backed up one by one: specify one")
    return Source("logs", (BrokerSource(0, (paths[0],)),), None)


def source_of_configs(paths: Sequence[str]) -> Source:
    """Brokers by their settings files."""
    configs = [BrokerConfig.load(path, environ={}) for path in paths]
    brokers = [
        BrokerSource(
            int(config["node.id"]),
            tuple(os.path.abspath(each) for each in config["log.dirs"]),
            Path(path).read_bytes(),
        )
        for path, config in zip(paths, configs, strict=True)
    ]
    return _source(brokers, [{name: config[name] for name in STORE_SETTINGS} for config in configs])


def source_of_cluster(admin: AdminClient) -> Source:
    """A running cluster whose brokers all run on this machine."""
    brokers, stores = [], []
    for node_id, dirs in sorted(admin.describe_log_dirs().items()):
        paths = tuple(sorted(dirs))
        for path in paths:
            if not os.path.isdir(path) or not os.access(path, os.R_OK | os.X_OK):
                raise BackupError(
                    f"broker {node_id} has its log dir at {path}, which cannot be read here: run "
                    "this command on its machine, as its user"
                )
        found = admin.describe_configs(str(node_id), resource="broker")
        named = found["log.dirs"].value or ""
        order = [os.path.abspath(each.strip()) for each in named.split(",") if each.strip()]
        dirs_in_order = tuple(sorted(paths, key=lambda path: path not in order[:1]))
        brokers.append(BrokerSource(node_id, dirs_in_order, _properties(node_id, found)))
        stores.append({name: found[name].value or "" for name in STORE_SETTINGS if name in found})
    return _source(brokers, stores)


def _source(brokers: Sequence[BrokerSource], stores: Sequence[Mapping[str, str]]) -> Source:
    """Brokers that share a coordination store, or one broker with its own store in its first log
    dir.
    """
    first = {name: stores[0].get(name) or "" for name in STORE_SETTINGS}
    for broker, store in zip(brokers, stores, strict=True):
        if {name: store.get(name) or "" for name in STORE_SETTINGS} != first:
            raise BackupError(
                f"brokers {brokers[0].node_id} and {broker.node_id} have different coordination "
                f"stores, so their clusters differ: check {' and '.join(STORE_SETTINGS)}"
            )
    if first["kstore.coordination.dir"]:
        return Source("cluster", tuple(brokers), _folder_tree(first["kstore.coordination.dir"]))
    if first["zookeeper.connect"]:
        return Source("cluster", tuple(brokers), _zookeeper_tree(first["zookeeper.connect"]))
    if len(brokers) > 1:
        raise BackupError(
            "these brokers do not share a coordination store: back them up one by one"
        )
    return Source("alone", tuple(brokers), _own_tree(brokers[0].log_dirs[0]))


def _properties(node_id: int, configs: Mapping[str, ConfigEntry]) -> bytes:
    """The settings that the broker was started with, as a settings file without passwords."""
    from kstore.clients.admin import ConfigSource

    lines = [
        "# Written by `kstore backup` from the broker's response, without passwords: add them.",
        f"node.id={node_id}",
    ]
    for name, entry in sorted(configs.items()):
        if entry.source == ConfigSource.STATIC_BROKER and name not in {"node.id", "broker.id"}:
            value = "" if entry.value is None else entry.value.replace("\\", "\\\\")
            lines.append(f"# {name}=" if entry.is_sensitive else f"{name}={value}")
    return ("\n".join(lines) + "\n").encode()


def _own_tree(log_dir: str) -> ReadTree:
    return _folder_tree(os.path.join(log_dir, STORE_FOLDER))


def _folder_tree(path: str) -> ReadTree:
    from kstore.broker.coordination.lmdb_store import read_nodes

    return lambda: read_nodes(path)


def _zookeeper_tree(connect: str) -> ReadTree:
    def read() -> Mapping[str, bytes]:
        from kstore.broker.coordination.tree_copy import copy_tree
        from kstore.broker.coordination.zookeeper_store import ZooKeeperStore

        with closing(ZooKeeperStore(connect)) as store:
            return copy_tree(store)

    return read


def _node_id(log_dir: str) -> int:
    path = os.path.join(log_dir, META)
    if not os.path.exists(path):
        return 1
    with open(path, encoding="utf-8") as file:
        values = {entry.key: entry.value for entry in parse_properties(file.read(), path)}
    return int(values.get("broker.id", "1"))
