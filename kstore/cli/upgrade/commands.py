"""``kstore upgrade check``: exit code 0 if this version of kstore can take over, else 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.client_config import client_config
from kstore.cli.failure import FAILED, fail, guarded
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.cli.upgrade.finding import Finding

__all__ = ["app"]

app = typer.Typer(
    help="Check whether this version can take over data or a cluster.", no_args_is_help=True
)


@app.callback()
def upgrade() -> None:
    """Check whether this version can take over data or a cluster."""


@app.command(epilog="Example: kstore upgrade check --folder ./kstore-cluster")
@guarded
def check(
    folder: Annotated[
        list[str] | None,
        typer.Option("--folder", "-f", help="A cluster's folder, or a log dir; may be repeated."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A broker's settings file; may be repeated."),
    ] = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    json: Json = False,
) -> None:
    """Check whether the installed version can open the data and work with the running brokers.

    Install the new version beside the old one, and run its `kstore upgrade check` before you stop
    a broker. It changes nothing.
    """
    from kstore.version import installed_version

    findings = list(_of_files(folder or [], config or []))
    if bootstrap is not None or not findings:
        from kstore.cli.upgrade.cluster import check_cluster
        from kstore.clients import AdminClient

        with AdminClient(client_config("admin", bootstrap, properties, profile)) as admin:
            findings += check_cluster(admin)
    Output(json).table(
        [each._asdict() for each in findings],
        ["good", "check", "item", "found", "known", "advice"],
    )
    bad = sum(not each.good for each in findings)
    if bad:
        raise SystemExit(
            fail(
                f"kstore {installed_version()} can't take over yet: {bad} checks failed",
                FAILED,
            )
        )


def _of_files(folders: list[str], configs: list[str]) -> Iterator[Finding]:
    from kstore.cli.upgrade.cluster import check_settings_file
    from kstore.cli.upgrade.formats import check_formats

    log_dirs: list[str] = []
    configs = list(configs)
    for folder in folders:
        brokers = sorted(Path(folder).glob("broker*/server.properties"))
        configs += map(str, brokers)
        log_dirs += [] if brokers else [folder]
    for path in configs:
        finding = check_settings_file(path)
        yield finding
        if finding.good:
            log_dirs += _log_dirs(path)
    for log_dir in dict.fromkeys(log_dirs):
        if not Path(log_dir).is_dir():
            raise SystemExit(
                fail(f"{log_dir} is not a folder: specify a log dir, or a cluster's folder")
            )
        yield from check_formats(Path(log_dir))


def _log_dirs(path: str) -> list[str]:
    from kstore.config import BrokerConfig

    config = BrokerConfig.load(path, environ={})
    shared = config["kstore.coordination.dir"]
    return [*config["log.dirs"], *([shared] if shared else [])]
