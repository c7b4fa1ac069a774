"""``kstore backup``: the commands. Each exits with 0, with 1 and a message, or with 130 after
Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.failure import FAILED, fail, guarded
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.backup.folder import BackupFolder
    from kstore.backup.manifest import Manifest
    from kstore.backup.source import Source

__all__ = ["app"]

app = typer.Typer(
    help="Back up a broker, a cluster or a log dir on this machine, and restore it.",
    no_args_is_help=True,
)

Destination = Annotated[
    Path,
    typer.Argument(
        metavar="DEST",
        help="The folder that holds the backups.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--backup",
        help="The backup's name; by default the newest.",
    ),
]


def _folder(path: Path) -> BackupFolder:
    from kstore.backup.folder import BackupFolder

    return BackupFolder(path.absolute())


@app.command(epilog="Example: kstore backup create /mnt/backups --folder ./kstore-cluster")
@guarded
def create(
    destination: Destination,
    folder: Annotated[
        list[str] | None,
        typer.Option(
            "--folder", "-f",
            help="A cluster's folder (of `kstore cluster`), or the log dirs of one broker or of "
            "an embedded log; may be repeated.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A broker's settings file; repeat it for each broker."),
    ] = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Create a backup while brokers run. Only data that is not in earlier backups is copied.

    --folder and --config only read files; --bootstrap-server asks a running cluster where its files
    are. All files must be on this machine.
    """
    from kstore.backup.create import create as make
    from kstore.version import installed_version

    source = _source(folder, config, bootstrap, properties, profile)
    with _telling(json, None) as tell:
        made = make(_folder(destination), source, installed_version(), tell)
    row = _row(made)
    Output(json).print(
        row,
        f"backup {made.name}: {row['partitions']} partitions, {made.bytes:,} bytes, of which "
        f"{made.new_bytes:,} are new in {destination}",
    )


def _source(
    folder: list[str] | None,
    config: list[str] | None,
    bootstrap: str | None,
    properties: list[str] | None,
    profile: str | None,
) -> Source:
    from kstore.cli.backup.sources import source_of_cluster, source_of_configs, source_of_folders

    if bool(folder) + bool(config) + (bootstrap is not None) > 1:
        raise typer.BadParameter("use one of --folder, --config and --bootstrap-server")
    if folder:
        return source_of_folders(folder)
    if config:
        return source_of_configs(config)
    from kstore.cli.client_config import client_config
    from kstore.clients import AdminClient

    with AdminClient(client_config("admin", bootstrap, properties, profile)) as admin:
        return source_of_cluster(admin)


@app.command("list", epilog="Example: kstore backup list /mnt/backups")
@guarded
def show(destination: Destination, json: Json = False) -> None:
    """List the backups, the oldest first. Exit code 1 if one of them cannot be read."""
    from kstore.backup.errors import BackupError

    folder = _folder(destination)
    rows, errors = [], []
    for name in folder.names():
        try:
            rows.append(_row(folder.manifest(name)))
        except BackupError as error:
            errors.append(str(error))
    Output(json).table(rows, ["name", "kind", "moment", "partitions", "bytes", "new_bytes"])
    for sentence in errors:
        fail(sentence)
    if errors:
        raise SystemExit(FAILED)


@app.command(epilog="Example: kstore backup verify /mnt/backups")
@guarded
def verify(destination: Destination, backup: Name = None, json: Json = False) -> None:
    """Read a whole backup: every SHA-256, every batch. Exit code 1 if anything is wrong."""
    from kstore.backup.restore import verify as check

    folder = _folder(destination)
    manifest = folder.manifest(backup)
    with _telling(json, manifest.bytes) as tell:
        check(folder, manifest, tell)
    Output(json).print(_row(manifest), f"backup {manifest.name} is good: {manifest.bytes:,} bytes")


@app.command(epilog="Example: kstore backup restore /mnt/backups --to ./restored")
@guarded
def restore(
    destination: Destination,
    to: Annotated[Path, typer.Option("--to", help="A new or empty folder to restore to.")],
    backup: Name = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            help="host:port/path of an empty place in ZooKeeper for a cluster's topics and "
            "settings; by default they are restored to the folder.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Restore a backup to a new folder, and verify every batch. Then start the brokers with `kstore
    cluster start --dir`, or with log.dirs set to this folder.
    """
    from kstore.backup.restore import restore as put_back

    folder = _folder(destination)
    manifest = folder.manifest(backup)
    if zookeeper is not None and manifest.kind != "cluster":
        raise typer.BadParameter(f"backup {manifest.name} is not of a cluster: omit --zookeeper")
    with _telling(json, manifest.bytes) as tell:
        put_back(folder, manifest, to, _put_tree(zookeeper), tell, zookeeper=zookeeper)
    Output(json).print(
        _row(manifest) | {"folder": str(to)},
        f"backup {manifest.name} restored to {to}; start it with: {_start(manifest, to)}",
    )


def _put_tree(zookeeper: str | None) -> Callable[[str, Mapping[str, bytes]], None]:
    def put(path: str, nodes: Mapping[str, bytes]) -> None:
        from kstore.broker.coordination.lmdb_store import LmdbStore
        from kstore.broker.coordination.store import Store
        from kstore.broker.coordination.tree_copy import put_tree

        store: Store
        if zookeeper is None:
            store = LmdbStore(path)
        else:
            from kstore.broker.coordination.zookeeper_store import ZooKeeperStore

            store = ZooKeeperStore(zookeeper)
        with closing(store):
            put_tree(store, nodes)

    return put


def _start(manifest: Manifest, folder: Path) -> str:
    if manifest.kind == "cluster":
        return f"kstore cluster start --dir {folder}"
    if manifest.kind == "logs":
        return f'kstore.open_log_dir("{folder}")'
    if (folder / "server.properties").exists():
        return f"kstore serve {folder / 'server.properties'}"
    return f"kstore serve --override log.dirs={folder}"


@app.command(epilog="Example: kstore backup delete /mnt/backups --backup 20261123T170000.000Z")
@guarded
def delete(
    destination: Destination,
    backup: Annotated[str, typer.Option("--backup", help="The backup's name.")],
    json: Json = False,
) -> None:
    """Delete a backup, and the data that no other backup needs."""
    folder = _folder(destination)
    folder.names()
    with folder.writing():
        freed = folder.delete(backup)
    data = {"name": backup, "freed_bytes": freed}
    Output(json).print(data, f"backup {backup} deleted, {freed:,} bytes freed")


def _row(manifest: Manifest) -> dict[str, Any]:
    moment = datetime.fromtimestamp(manifest.noted_ms / 1000, UTC)
    return {
        "name": manifest.name,
        "kind": manifest.kind,
        "moment": moment.isoformat(timespec="milliseconds"),
        "version": manifest.version,
        "partitions": len(manifest.partitions),
        "bytes": manifest.bytes,
        "new_bytes": manifest.new_bytes,
    }


@contextmanager
def _telling(json: bool, total: int | None) -> Iterator[Callable[[int], None]]:
    """Report the progress, in bytes."""
    from kstore.cli.progress import FIRST_LINE_S, HowFar, Progress

    progress = Progress(json, FIRST_LINE_S)
    done = 0

    def tell(size: int) -> None:
        nonlocal done
        done += size
        to_go = None if total is None else max(0, total - done)
        progress.show(HowFar(done, to_go, "bytes"), {"bytes": done, "to_go": to_go})

    try:
        yield tell
    except KeyboardInterrupt:
        fail("interrupted; the earlier backups are unchanged")
        raise
    finally:
        progress.end()
