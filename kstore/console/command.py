"""``kstore console``: the web console of any cluster, without a broker beside it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import Annotated
from urllib.parse import urlsplit

import typer

from kstore.cli.client_config import client_config
from kstore.cli.options import ProfileName, Properties, Servers
from kstore.cli.records.field_formats import Registry

__all__ = ["EXAMPLE", "console"]

EXAMPLE = "Example: kstore console -b localhost:9092 --listen http://127.0.0.1:8080"
TOKEN = "KSTORE_CONSOLE_TOKEN"
EXTRA = "the console needs libraries, and {} can't be imported: pip install 'kstore[console]'"


def console(
    listen: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The address: http://HOST:PORT; port 0 means a free port."
        ),
    ] = "http://127.0.0.1:8080",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything and change nothing.")
    ] = False,
    schema_registry: Registry = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    json: Annotated[bool, typer.Option("--json", help="Write the ready line as JSON.")] = False,
) -> None:
    """Serve a web console of a cluster until Ctrl-C. If the cluster has SASL and no credentials are
    given, users log in with their own. Otherwise they log in with KSTORE_CONSOLE_TOKEN, if it is
    set.
    """
    config = client_config("admin", bootstrap, properties, profile)
    config.setdefault("bootstrap.servers", "localhost:9092")
    try:
        from kstore.console.cluster.settings import ConsoleSettings, Login
        from kstore.console.run import serve
    except ImportError as error:
        raise typer.BadParameter(EXTRA.format(error.name)) from None
    settings = ConsoleSettings(config, read_only, schema_registry, os.environ.get(TOKEN))
    host, bound = _bound(listen)
    if settings.login is Login.NONE and not _is_loopback(host):
        raise typer.BadParameter(
            f"{listen} can be reached by other machines: set {TOKEN}, use a SASL listener of the "
            "cluster, or listen on 127.0.0.1"
        )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{bound.getsockname()[1]}/"

    def on_ready() -> None:
        line = f'{{"url": "{url}"}}' if json else f"kstore console at {url}"
        print(line, flush=True)

    asyncio.run(serve(settings, bound, on_ready))


def _bound(url: str) -> tuple[str, socket.socket]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "http" or not host or port is None:
        raise typer.BadParameter(f"{url!r} is not http://HOST:PORT, such as http://127.0.0.1:8080")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return host, socket.create_server((host, port), family=family)
    except OSError as error:
        raise typer.BadParameter(f"{url}: {error.strerror or error}; choose another port") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
