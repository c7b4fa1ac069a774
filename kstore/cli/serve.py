"""``kstore serve``: read the settings, start the broker, and report when it is ready.

serve_command.py has the command with its help. A plain start does not load it: this module parses a
plain command line, because a command line library would cost a tenth of the start time. The broker
itself is kstore.broker.app.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from kstore.cli.failure import explain
from kstore.config import BrokerConfig

__all__ = ["ServeArguments", "milliseconds_since_start", "plain_arguments", "serve"]


class ServeArguments(NamedTuple):
    """The parsed command line."""

    path: str | None
    overrides: dict[str, str]
    config_print: bool
    json: bool


def plain_arguments(arguments: Sequence[str]) -> ServeArguments | None:
    """Parse the arguments after ``serve`` if they are simple. None if the full parser is needed:
    for --help, abbreviated options, and all errors.
    """
    paths: list[str] = []
    overrides: dict[str, str] = {}
    flags = {"--config-print": False, "--json": False}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument in flags:
            flags[argument] = True
        elif name == "--override":
            key, equals, value = (value if equals else next(rest, "")).partition("=")
            if not equals or not key.strip():
                return None
            overrides[key.strip()] = value
        elif argument.startswith("-") or paths:
            return None
        else:
            paths.append(argument)
    path = paths[0] if paths else None
    return ServeArguments(path, overrides, flags["--config-print"], flags["--json"])


def serve(given: ServeArguments) -> int:
    """Run ``kstore serve`` until the broker has stopped, and return the exit code."""
    try:
        return _serve(given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - explain() raises defects
        return explain(error)


def _serve(given: ServeArguments) -> int:
    if given.overrides:
        from kstore.cli.process_list import hide_secrets

        hide_secrets(given.overrides)
    config = BrokerConfig.load(given.path, given.overrides)
    if given.config_print:
        _warn(config)
        print_config(config, as_json=given.json)
        sys.stdout.flush()
        return 0
    from kstore.broker.runtime.log_lines import JSON, start_logging

    start_logging(config["kstore.logging.format"])
    if config["kstore.logging.format"] != JSON:
        _warn(config)
        return run_broker(config, as_json=given.json)
    import logging

    log = logging.getLogger("kstore.broker")
    for warning in config.warnings:
        log.warning("%s", warning)
    try:
        return run_broker(config, as_json=given.json)
    except Exception as error:  # noqa: BLE001 - explain() raises defects
        return explain(error, log.critical)


def _warn(config: BrokerConfig) -> None:
    for warning in config.warnings:
        print(f"kstore: {warning}", file=sys.stderr)


def run_broker(config: BrokerConfig, *, as_json: bool) -> int:
    """Serve until a signal stops it, and print the ready line."""
    from kstore.broker.app import serve as serve_broker

    def on_ready(host: str, port: int, api_url: str | None) -> None:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        elapsed_ms = milliseconds_since_start()
        if as_json:
            import json

            data = {"address": address, "ready_ms": elapsed_ms, "log_dirs": config["log.dirs"]}
            if api_url is not None:
                data["http"] = api_url
            print(json.dumps(data), flush=True)
        else:
            print(f"kstore ready on {address} in {elapsed_ms} ms", flush=True)

    serve_broker(config, on_ready)
    return 0


def print_config(config: BrokerConfig, *, as_json: bool) -> None:
    """Print every setting with its value and source, one per line."""
    rows = [(name, config.text(name), str(config.source(name))) for name, _ in config.items()]
    if as_json:
        import json

        print(json.dumps([{"name": n, "value": v, "source": s} for n, v, s in rows], indent=2))
        return
    width = max(len(f"{name}={value}") for name, value, _ in rows if len(value) < 60)
    for name, value, source in rows:
        print(f"{name + '=' + value:<{width}}  # {source}")


def milliseconds_since_start() -> int:
    """How long this process has existed, including the start of the interpreter (to 10 ms)."""
    import os

    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            # Field 22, counted from the end of the command's name, which may contain blanks.
            ticks = int(stat.read().rpartition(")")[2].split()[19])
    except OSError:
        return round(time.process_time() * 1000)
    started = ticks / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000)
