"""``kstore replicate``: copy topics from any Kafka to kstore with equal offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.arguments import one_of
from kstore.cli.client_config import client_config
from kstore.cli.options import Json
from kstore.cli.progress import HowFar, Progress
from kstore.cli.records.copy_options import (
    FromProfile,
    Groups,
    Isolation,
    NoConfigs,
    NoGroups,
    Rate,
    Regex,
    Replicas,
    SourceProperty,
    TargetProperty,
    Topics,
    ToProfile,
)
from kstore.cli.waiting import telling_waits

if TYPE_CHECKING:
    from kstore.clients.replicator import Event, Replicator

__all__ = ["EXAMPLE", "parse_rate", "replicate"]

EXAMPLE = "Example: kstore replicate --from old:9092 --to localhost:9092 orders payments"
_PROGRESS_S = 1.0
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_rate(text: str | None) -> float | None:
    """Bytes per second of "10MB", "512KiB", "1000000"; None for None. Raises typer.BadParameter for
    anything else.
    """
    if text is None:
        return None
    number = text.strip().lower().removesuffix("/s").removesuffix("b")
    unit = number.lstrip("0123456789.")
    try:
        rate = float(number.removesuffix(unit)) * _UNITS[unit.strip()]
    except (KeyError, ValueError):
        rate = 0.0
    if rate <= 0:
        raise typer.BadParameter(f"{text!r} is not a rate such as 10MB or 512KiB, per second")
    return rate


# Continue when a broker is unavailable for a while.
_DEFAULTS = {"client.id": "kstore-replicate", "default.api.timeout.ms": 60_000}


_Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="host:port of the source cluster, which can be any Kafka.",
    ),
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="host:port of the target cluster, which must be kstore; by default localhost:9092.",
    ),
]
_UntilCaughtUp = Annotated[
    bool,
    typer.Option(
        "--until-caught-up", help="Stop when the records that existed at the start are copied."
    ),
]
_Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Copy logs byte for byte, with transaction markers, producer ids and leader epochs. "
        "The copy refuses other writes until it is switched.",
    ),
]
_Switch = Annotated[
    bool,
    typer.Option(
        "--switch",
        help="With --exact: copy until the source is idle, then let the copy accept writes.",
    ),
]
_Fence = Annotated[
    bool,
    typer.Option("--fence-source", help="With --switch: make a kstore source refuse producers."),
]
_OnLoss = Annotated[
    str,
    typer.Option(help="fail or skip, if the source has deleted records that were not copied yet."),
]
_Excluded = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Do not copy this topic config.")
]
_Interval = Annotated[
    int, typer.Option(help="How often to check topics, configs and groups, in milliseconds.")
]


def replicate(
    topics: Topics,
    source: _Source = None,
    target: _Target = None,
    regex: Regex = False,
    until_caught_up: _UntilCaughtUp = False,
    exact: _Exact = False,
    switch: _Switch = False,
    fence_source: _Fence = False,
    groups: Groups = ".*",
    no_groups: NoGroups = False,
    isolation_level: Isolation = "read_committed",
    on_loss: _OnLoss = "fail",
    rate_limit: Rate = None,
    replication_factor: Replicas = -1,
    no_configs: NoConfigs = False,
    exclude_config: _Excluded = None,
    sync_interval_ms: _Interval = 10_000,
    source_property: SourceProperty = None,
    target_property: TargetProperty = None,
    from_profile: FromProfile = None,
    to_profile: ToProfile = None,
    json: Json = False,
) -> None:
    """Copy topics from any Kafka to kstore: records at their offsets, configs, committed offsets.

    It keeps no state: you can kill it at any time and start it again. Two may run at the same time.
    """
    from kstore.clients.replicator import ReplicationOptions, Replicator
    from kstore.clients.replicator.options import names_pattern

    if source is None and from_profile is None:
        raise typer.BadParameter("specify the cluster to copy from: --from or --from-profile")
    one_of("--isolation-level", isolation_level, "read_committed", "read_uncommitted")
    one_of("--on-loss", on_loss, "fail", "skip")
    if (switch and not exact) or (fence_source and not switch):
        raise typer.BadParameter("--switch needs --exact, and --fence-source needs --switch")
    try:
        wanted = names_pattern(topics, regex=regex)
        group_pattern = None if no_groups else names_pattern([groups], regex=True)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    options = ReplicationOptions(
        topics=wanted,
        groups=group_pattern,
        isolation_level=isolation_level,
        exact=exact,
        fence_source=fence_source,
        on_loss=on_loss,
        rate_limit=parse_rate(rate_limit),
        replication_factor=replication_factor,
        copy_configs=not no_configs,
        excluded_configs=frozenset(exclude_config or ()),
        sync_interval_ms=sync_interval_ms,
    )
    display = _Display(json)
    replicator = Replicator(
        client_config("consumer", source, source_property, from_profile, _DEFAULTS),
        client_config("admin", target, target_property, to_profile, _DEFAULTS),
        options,
        display.event,
    )
    _run(replicator, display, until_caught_up=until_caught_up, switch=switch)


def _run(replicator: Replicator, display: _Display, *, until_caught_up: bool, switch: bool) -> None:
    import asyncio

    async def work() -> None:
        ticker = asyncio.create_task(display.tick(replicator))
        try:
            await replicator.run(until_caught_up=until_caught_up, switch=switch)
        finally:
            ticker.cancel()

    try:
        with telling_waits(display.waiting):
            asyncio.run(work())
    finally:
        display.progress(replicator, final=True)


class _Display:
    """Print events as lines, and the progress."""

    def __init__(self, as_json: bool) -> None:
        self._progress = Progress(as_json)

    def event(self, event: Event) -> None:
        """Print what happened."""
        if not self._progress.as_json:
            self._progress.print(f"{event.kind}: {event.text}")
            return
        row: dict[str, Any] = {"text": event.text}
        if event.tp is not None:
            row |= {"topic": event.tp.topic}
            if event.tp.partition >= 0:
                row |= {"partition": event.tp.partition, "offset": event.offset}
        self._progress.event(event.kind, row)

    def waiting(self, text: str) -> None:
        """Print what it waits for."""
        if self._progress.as_json:
            self._progress.event("waiting", {"text": text})
        else:
            self._progress.print(text)

    async def tick(self, replicator: Replicator) -> None:
        """Show progress every second."""
        import asyncio

        while True:
            await asyncio.sleep(_PROGRESS_S)
            self.progress(replicator)

    def progress(self, replicator: Replicator, *, final: bool = False) -> None:
        """Print the progress; the last line is written to stdout."""
        found = replicator.progress()
        row = {
            "partitions": found.partitions,
            "failed": found.failed,
            "records": found.records,
            "bytes": found.bytes,
            "already_there": found.already_there,
            "lag": found.lag,
            "group_offsets": replicator.group_offsets,
        }
        more = f"{found.partitions} partitions, {replicator.group_offsets} group offsets"
        how_far = HowFar(found.records, found.lag, bytes=found.bytes, more=more)
        if not final:
            self._progress.show(how_far, row)
            return
        self._progress.end()
        seconds = self._progress.seconds
        if self._progress.as_json:
            self._progress.event("done", {"seconds": round(seconds, 3)} | row)
        else:
            rate = found.bytes / 1e6 / max(seconds, 1e-3)
            print(
                f"{found.records} records, {found.bytes / 1e6:.1f} MB ({rate:.1f} MB/s) in "
                f"{found.partitions} partitions, {found.lag} to go, "
                f"{replicator.group_offsets} group offsets",
                flush=True,
            )
