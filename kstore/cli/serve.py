"""``kstore serve``: read the settings, start the broker, say when it is ready.

The arguments are read by hand, because a library for that would cost a tenth of the time that a
start may take. The broker itself is kstore.broker.app.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from kstore.cli.failure import USAGE_ERROR, explain, fail
from kstore.config import BrokerConfig

__all__ = ["ServeArguments", "UsageError", "milliseconds_since_start", "parse_arguments", "serve"]

HELP = """\
Usage: kstore serve [server.properties] [--override KEY=VALUE]... [--config-print] [--json]

Start a broker and run it until Ctrl-C or SIGTERM. Without a file it listens on localhost:9092 and
keeps its data in your data folder.

  server.properties     Settings under Kafka's names, in Java's properties format.
  --override KEY=VALUE  Set one setting; may be given many times. It wins over the file and over
                        the environment (KSTORE_LOG_DIRS sets log.dirs, and so on).
  --config-print        Show every setting with its value and where it came from, and stop.
  --json                Write the ready line, or the settings, as JSON.
  -h, --help            Show this and stop.

Examples:
  kstore serve
  kstore serve --override log.dirs=./data --override listeners=PLAINTEXT://localhost:9192
  KSTORE_NUM_PARTITIONS=4 kstore serve server.properties --config-print
"""


class UsageError(Exception):
    """The command line can't be understood; the message says what was found and what was
    expected.
    """


class ServeArguments(NamedTuple):
    """What stood on the command line."""

    path: str | None
    overrides: dict[str, str]
    config_print: bool
    json: bool
    help: bool


def parse_arguments(arguments: Sequence[str]) -> ServeArguments:
    """Read the arguments after ``serve``; UsageError for one that is not known or lacks its
    value.
    """
    path: str | None = None
    overrides: dict[str, str] = {}
    flags = {"--config-print": False, "--json": False, "--help": False}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument in flags or argument == "-h":
            flags["--help" if argument == "-h" else argument] = True
        elif name == "--override":
            if not equals and not rest:
                raise UsageError("--override needs a KEY=VALUE after it")
            text = value if equals else rest.pop(0)
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise UsageError(
                    f"--override takes KEY=VALUE, such as num.partitions=4, not {text!r}"
                )
            overrides[key.strip()] = value
        elif argument.startswith("-"):
            raise UsageError(f"kstore serve has no option {argument}; see kstore serve --help")
        elif path is not None:
            raise UsageError(f"kstore serve takes one file, and was given {path} and {argument}")
        else:
            path = argument
    return ServeArguments(
        path, overrides, flags["--config-print"], flags["--json"], flags["--help"]
    )


def serve(arguments: Sequence[str]) -> int:
    """Run ``kstore serve`` and return its exit code; returns when the broker has stopped."""
    try:
        return _serve(parse_arguments(arguments))
    except UsageError as error:
        return fail(str(error), USAGE_ERROR)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - explain() raises defects
        return explain(error)


def _serve(given: ServeArguments) -> int:
    if given.help:
        print(HELP, end="")
        return 0
    if given.overrides:
        from kstore.cli.process_list import hide_secrets

        hide_secrets(given.overrides)
    config = BrokerConfig.load(given.path, given.overrides)
    for warning in config.warnings:
        print(f"kstore: {warning}", file=sys.stderr)
    if given.config_print:
        print_config(config, as_json=given.json)
        sys.stdout.flush()
        return 0
    return run_broker(config, as_json=given.json)


def run_broker(config: BrokerConfig, *, as_json: bool) -> int:
    """Serve until told to stop, and print the one line that says where and since when."""
    import logging

    from kstore.broker.app import serve as serve_broker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

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
    """Write every setting with its value and source, one a line."""
    rows = [(name, config.text(name), str(config.source(name))) for name, _ in config.items()]
    if as_json:
        import json

        print(json.dumps([{"name": n, "value": v, "source": s} for n, v, s in rows], indent=2))
        return
    width = max(len(f"{name}={value}") for name, value, _ in rows if len(value) < 60)
    for name, value, source in rows:
        print(f"{name + '=' + value:<{width}}  # {source}")


def milliseconds_since_start() -> int:
    """How long this process has existed, the interpreter's own start included (to 10 ms)."""
    import os

    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            # Field 22, counted from after the command's name, which may hold blanks.
            ticks = int(stat.read().rpartition(")")[2].split()[19])
    except OSError:
        return round(time.process_time() * 1000)
    started = ticks / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000)
