"""``kstore cluster``: start, watch and stop the brokers of a cluster on this machine.

Every broker is a separate `kstore serve`; no other process watches them.
"""

from __future__ import annotations

import json as json_text
import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.client_config import DEFAULT_FOLDER
from kstore.cli.cluster.machine import machine_name, usable_cores
from kstore.cli.cluster_folder import (
    BrokerFolder,
    ClusterError,
    ClusterFolder,
    Started,
    memory_bytes,
    start_all,
    wait_for_end,
)
from kstore.cli.failure import guarded
from kstore.cli.options import Json
from kstore.cli.output import Output
from kstore.cli.process_list import hide_secrets

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app"]

app = typer.Typer(
    help="Start, watch and stop a cluster of brokers on this machine; describe any cluster.",
    no_args_is_help=True,
)

FIRST_PORT = 9092
FIRST_ID = 1
HOST = "localhost"
AUTO = "auto"
STOP_TIMEOUT_S = 30.0
ASK_TIMEOUT_MS = 3000

Folder = Annotated[str, typer.Option("--dir", "-d", help="The cluster's folder.")]
BrokerId = Annotated[int, typer.Argument(metavar="BROKER", help="The broker's number.", min=0)]
Override = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="KEY=VALUE", help="A setting for each new broker."),
]
Rack = Annotated[
    str | None,
    typer.Option(
        "--rack",
        help="The broker.rack of each new broker; with auto, the name of this machine.",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        help="The host on which new brokers listen for clients.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait.", min=0.1)]


def _count(text: str) -> int | str:
    if text == AUTO:
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is not a number of brokers from 1 on, nor {AUTO}")
    return int(text)


@app.command(
    epilog="Example: kstore cluster start --brokers auto --dir ./cluster --port 9092 "
    "(or --brokers 3)"
)
@guarded
def start(
    brokers: Annotated[
        Any,
        typer.Option(
            "--brokers", "-n", parser=_count, metavar="COUNT|auto",
            help=
            "The number of brokers. auto: one per core, with this machine as their rack. Default "
            "in a new folder: 3.",
        ),
    ] = None,
    directory: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int, typer.Option("--port", "-p", help=
        "The port of the first broker; the others use the ports after it.",
        min=1)
    ] = FIRST_PORT,
    host: Host = HOST,
    first_id: Annotated[
        int,
        typer.Option(
            "--first-id", min=0,
            help=
            "The id of the first broker; the others use the ids after it. Each machine needs its "
            "own.",
        ),
    ] = FIRST_ID,
    rack: Rack = None,
    override: Override = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:  # fmt: skip
    """Start a new cluster, or the brokers of an existing one that are not running; returns when all
    are ready.
    """
    folder = ClusterFolder(directory)
    known = {broker.node_id: broker for broker in folder.brokers()}
    count = usable_cores() if brokers == AUTO else brokers or (0 if known else 3)
    ports = {first_id + place: port + place for place in range(count)}
    new = [node_id for node_id in ports if node_id not in known]
    stopped = [broker for broker in known.values() if broker.pid() is None]
    if known and not new and not stopped:
        raise ClusterError(
            f"all brokers of {folder.path} are already running: see `kstore cluster status`"
        )
    given = _overrides(override)
    if rack is None and brokers == AUTO:
        rack = machine_name()
    for node_id in new:
        _refuse_used_port(host, ports[node_id], node_id)
    total = len(known) + len(new)
    given = _with_rack(rack, given)
    made = [folder.make(node_id, host, ports[node_id], total, given) for node_id in new]
    _start(folder, [*stopped, *made], timeout, json=json)


@app.command(epilog="Example: kstore cluster add --dir ./cluster")
@guarded
def add(
    directory: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", help="The broker's port; by default the next one.", min=1),
    ] = None,
    host: Host = HOST,
    rack: Annotated[
        str | None,
        typer.Option(
            "--rack",
            help="The broker's broker.rack; by default that of the broker before it.",
        ),
    ] = None,
    override: Override = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:
    """Add a broker and start it. Partitions move to it only when you reassign them."""
    folder = ClusterFolder(directory)
    known = folder.existing()
    node_id = known[-1].node_id + 1
    if port is None:
        port = max(int(broker.address().rpartition(":")[2]) for broker in known) + 1
    if rack is None:
        rack = known[-1].config()["broker.rack"]
    _refuse_used_port(host, port, node_id)
    given = _with_rack(rack, _overrides(override))
    made = folder.make(node_id, host, port, len(known) + 1, given)
    _start(folder, [made], timeout, json=json)


@app.command(epilog="Example: kstore cluster status --dir ./cluster --json")
@guarded
def status(directory: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Show the brokers, whether they run, and which one is the controller. Exit code 1 unless all
    run.
    """
    folder = ClusterFolder(directory)
    rows = [_row(broker) for broker in folder.existing()]
    running = [row["address"] for row in rows if row["pid"] is not None]
    controller = _controller(running) if running else -1
    for row in rows:
        row["controller"] = row["pid"] is not None and row["broker"] == controller
        if json:
            print(json_text.dumps(row))
        else:
            print(_sentence(row))
    down = [str(row["broker"]) for row in rows if row["pid"] is None]
    if down:
        raise ClusterError(
            f"{len(down)} of {len(rows)} brokers are not running: {', '.join(down)}; "
            f"`kstore cluster start --dir {directory}` starts them"
        )


@app.command(epilog="Example: kstore cluster stop --dir ./cluster")
@guarded
def stop(
    directory: Folder = DEFAULT_FOLDER, timeout: Timeout = STOP_TIMEOUT_S, json: Json = False
) -> None:
    """Shut down all brokers cleanly. Their data is kept."""
    folder = ClusterFolder(directory)
    found = {broker: broker.end(signal.SIGTERM) for broker in folder.existing()}
    pids = {broker.node_id: pid for broker, pid in found.items() if pid is not None}
    left = wait_for_end(pids, timeout)
    for broker in found:
        if broker.node_id not in left:
            broker.pid_file.unlink(missing_ok=True)
    if left:
        names = ", ".join(f"{node_id} (pid {pid})" for node_id, pid in left.items())
        raise ClusterError(f"still running after {timeout:g} s: broker {names}")
    if json:
        print(json_text.dumps({"stopped": sorted(pids)}))
    else:
        print(f"stopped {len(pids)} brokers" if pids else "no broker was running")


@app.command(epilog="Example: kstore cluster kill 2 --dir ./cluster")
@guarded
def kill(broker: BrokerId, directory: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Kill one broker with kill -9, like a crash. `kstore cluster start` starts it again."""
    found = ClusterFolder(directory).broker(broker)
    pid = found.end(signal.SIGKILL)
    if pid is None:
        raise ClusterError(f"broker {broker} is not running")
    if wait_for_end({broker: pid}, STOP_TIMEOUT_S):
        raise ClusterError(f"broker {broker} (pid {pid}) did not exit")
    found.pid_file.unlink(missing_ok=True)
    print(json_text.dumps({"killed": broker, "pid": pid}) if json else f"killed broker {broker}")


@admin_command(app, "describe", "kstore cluster describe --bootstrap-server localhost:9092")
def describe(
    admin: AdminClient,
    out: Output,
    fenced: Annotated[
        bool,
        typer.Option(
            "--fenced",
            help="Include brokers that are registered but do not serve clients.",
        ),
    ] = False,
) -> None:
    """Show the brokers of any cluster, kstore's or Kafka's, and which of them is the controller."""
    found = admin.describe_cluster(fenced_brokers=fenced)
    rows = [
        broker._asdict() | {"is_controller": broker.node_id == found.controller_id}
        for broker in found.brokers
    ]
    if out.json:
        facts = {"cluster_id": found.cluster_id, "controller_id": found.controller_id}
        out.print(facts | {"brokers": rows}, "")
        return
    print(f"cluster {found.cluster_id}")
    out.table(rows, ["node_id", "host", "port", "rack", "is_controller", "is_fenced"])


def _start(
    folder: ClusterFolder, brokers: list[BrokerFolder], timeout_s: float, *, json: bool
) -> None:
    begin = time.monotonic()

    def tell(started: Started) -> None:
        if not json:
            print(f"broker {started.node_id} ready on {started.address}, pid {started.pid}")

    ready = start_all(brokers, timeout_s, tell)
    elapsed_ms = round((time.monotonic() - begin) * 1000)
    addresses = [b.address() for b in folder.brokers() if b.pid() is not None]
    if json:
        racks = {broker.node_id: broker.config()["broker.rack"] for broker in brokers}
        rows = [
            {"broker": each.node_id, **each._asdict(), "rack": racks[each.node_id]}
            for each in ready
        ]
        for row in rows:
            del row["node_id"]
        answer = {"bootstrap_servers": ",".join(addresses), "ready_ms": elapsed_ms}
        print(json_text.dumps(answer | {"brokers": rows}))
        return
    print(f"{len(ready)} ready in {elapsed_ms} ms; bootstrap.servers={','.join(addresses)}")


def _overrides(items: list[str] | None) -> dict[str, str]:
    found = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE, such as num.partitions=4")
        found[key.strip()] = value.strip()
    hide_secrets(found)
    return found


def _with_rack(rack: str | None, overrides: dict[str, str]) -> dict[str, str]:
    return overrides if rack is None else {"broker.rack": rack} | overrides


def _refuse_used_port(host: str, port: int, node_id: int) -> None:
    """Raise ListenError, before anything is written, if a broker could not listen there."""
    from kstore.net.transport import ListenError, bind

    if port > 65535:
        raise ClusterError(f"there is no port {port} for broker {node_id}: use a smaller --port")
    try:
        for sock in bind(host, port, backlog=1):
            sock.close()
    except ListenError as problem:
        why = str(problem).partition(";")[0]  # the rest names an option of `kstore serve`
        raise ClusterError(
            f"port {port} for broker {node_id} is not available ({why}): use another --port"
        ) from None


def _row(broker: BrokerFolder) -> dict[str, Any]:
    pid = broker.pid()
    return {
        "broker": broker.node_id,
        "pid": pid,
        "address": broker.address(),
        "memory_bytes": 0 if pid is None else memory_bytes(pid),
        "properties": str(broker.properties),
    }


def _controller(addresses: list[str]) -> int:
    """The controller's id as the brokers report it; -1 if none of them answers."""
    from kstore.clients import AdminClient
    from kstore.errors import KafkaError

    try:
        admin = AdminClient(",".join(addresses), default_api_timeout_ms=ASK_TIMEOUT_MS)
        with closing(admin):
            return admin.describe_cluster().controller_id
    except (KafkaError, OSError):
        return -1


def _sentence(row: dict[str, Any]) -> str:
    if row["pid"] is None:
        return f"broker {row['broker']}  {row['address']}  stopped"
    controller = "  controller" if row["controller"] else ""
    memory = f"{row['memory_bytes'] / 2**20:.0f} MB"
    return f"broker {row['broker']}  {row['address']}  pid {row['pid']}  {memory}{controller}"
