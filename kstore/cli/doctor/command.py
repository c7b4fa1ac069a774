"""The command ``kstore doctor``: selects the checks, and returns the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kstore.cli import completion
from kstore.cli.arguments import key_values, parse_duration_ms
from kstore.cli.client_config import client_config
from kstore.cli.doctor.checks import BROKER_CHECKS, CLIENT_CHECKS, CLUSTER_CHECKS, examine
from kstore.cli.doctor.findings import Limits
from kstore.cli.doctor.report import Report
from kstore.cli.failure import FAILED
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.output import Output

__all__ = ["EXAMPLE", "doctor"]

EXAMPLE = (
    "Example: kstore doctor --bootstrap-server localhost:9092   (a running cluster); "
    "kstore doctor --config server.properties   (before the broker runs)"
)
CLUSTER_NAMES = tuple(check.name for check in CLUSTER_CHECKS)
TABLES = (
    ("--config", BROKER_CHECKS), ("--client-config", CLIENT_CHECKS), ("cluster", CLUSTER_CHECKS),
)  # fmt: skip
NAMES = tuple(dict.fromkeys(check.name for _, checks in TABLES for check in checks))
_DEFAULT = Limits()

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="server.properties",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Check this machine for a broker with these settings. The broker does not "
        "have to run.",
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="client.properties",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Check these client settings, and connect with them.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHECK",
        help="Run only this check; may be repeated. --list shows the names.",
        autocompletion=completion.words(*NAMES),
    ),
]
MinFree = Annotated[
    float,
    typer.Option(min=0, max=100, help="Report log dirs with less free space than this percentage."),
]
MaxTransaction = Annotated[
    str,
    typer.Option(metavar="TIME", help="Report transactions that are open for longer than this."),
]


def doctor(
    config: ConfigFile = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="With --config: one more setting, as in `kstore serve`; may be repeated.",
            autocompletion=completion.broker_configs,
        ),
    ] = None,
    client_file: ClientConfig = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    only: Only = None,
    max_lag: Annotated[
        int, typer.Option(min=0, help="Report groups whose lag is larger than this many records.")
    ] = _DEFAULT.lag_records,
    min_free: MinFree = _DEFAULT.free_percent,
    max_transaction: MaxTransaction = "5m",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit code 1 also for warnings and for checks that could not run."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the checks that found nothing, too.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
    json: Json = False,
) -> None:
    """Find problems with a broker's machine and settings (--config), or with a running cluster and
    the connection to it. Each finding has its evidence, its meaning and a fix.

    This changes nothing. Exit code 0: no errors, but there can be warnings. 1: errors. 2: incorrect
    usage.
    """
    if show_list:
        _list_checks(Output(json))
        return
    unknown = sorted(set(only or ()) - set(NAMES))
    if unknown:
        raise typer.BadParameter(f"there is no check {unknown[0]!r}; --list shows all")
    if override and config is None:
        raise typer.BadParameter("--override needs --config")
    limits = Limits(
        free_percent=min_free,
        lag_records=max_lag,
        transaction_ms=parse_duration_ms(max_transaction),
    )
    report = Report(as_json=json, verbose=verbose)
    if config is not None:
        _check_broker(report, config, override, limits, only or [])
    given: dict[str, str] = {}
    if client_file is not None:
        given = _check_client(report, client_file, limits, only or [])
    of_cluster = config is None or bootstrap or properties or profile or client_file
    if of_cluster and (not only or not set(only).isdisjoint(CLUSTER_NAMES)):
        servers = bootstrap or given.get("bootstrap.servers")
        settings = client_config("admin", servers, properties, profile, given)
        _check_cluster(report, settings, limits, only)
    report.end()
    if report.errors or (strict and (report.warnings or report.not_checked)):
        raise SystemExit(FAILED)


def _list_checks(out: Output) -> None:
    rows = [
        {"check": check.name, "of": of, "about": check.about}
        for of, checks in TABLES
        for check in checks
    ]
    out.table(rows, ["check", "of", "about"])


def _check_broker(
    report: Report, path: Path, override: list[str] | None, limits: Limits, only: list[str]
) -> None:
    from kstore.cli.doctor.contradictions import refused_settings
    from kstore.cli.doctor.machine import Machine
    from kstore.config import BrokerConfig, ConfigError

    given = key_values(override, "num.partitions=4")
    try:
        settings = BrokerConfig.load(path, given)
    except ConfigError as problem:
        report.show([("settings", refused_settings(problem))])
        return
    report.show(examine(BROKER_CHECKS, Machine(settings, str(path)), limits, only))


def _check_client(report: Report, path: Path, limits: Limits, only: list[str]) -> dict[str, str]:
    """Check the client settings with which an administrator connects."""
    from kstore.cli.doctor.client_checks import ClientFile

    file = ClientFile(path)
    report.show(examine(CLIENT_CHECKS, file, limits, only))
    return file.of("admin")


def _check_cluster(
    report: Report, config: dict[str, object], limits: Limits, only: list[str] | None
) -> None:
    from kstore.cli.doctor.cluster import ClusterView
    from kstore.clients import AdminClient
    from kstore.config.client.configs import client_settings

    settings = client_settings("admin", config)
    servers = [each.strip() for each in settings["bootstrap.servers"] if each.strip()]
    with AdminClient(config) as admin:
        view = ClusterView(admin, servers, settings=settings)
        report.show(examine(CLUSTER_CHECKS, view, limits, only or (), {*report.checks}))
