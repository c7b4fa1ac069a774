"""The command ``make run``: start a broker, load a file through an unmodified client, compare, and
keep the broker running until Ctrl-C.

The broker is a separate process, started as a user would start it; the load is
kstore.pipeline.jobs.load. A second run with the same data folder finds the earlier records and
appends.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from kstore.broker_process import BrokerEndedError, BrokerLateError, BrokerProcess, serve_command
from kstore.pipeline.jobs.load import LoadError, LoadResult, load, print_result
from kstore.pipeline.jobs.source_file import SourceError, open_source

__all__ = ["TemporaryBroker", "main"]

DEFAULT_PORT = 9092
_START_S = 30.0
_STOP_S = 30.0


class TemporaryBroker:
    """A ``kstore serve`` with a data folder; the end of the with block stops it cleanly."""

    def __init__(self, data: Path, port: int) -> None:
        settings = (f"log.dirs={data}", f"listeners=PLAINTEXT://localhost:{port}")
        overrides = [word for setting in settings for word in ("--override", setting)]
        # In a session of its own: Ctrl-C reaches only this process, which then stops the broker in
        # order.
        self.process = BrokerProcess(
            serve_command(*overrides, isolated=False), environment=os.environ, stdin=None
        )
        self.address = ""
        self.ready_ms = 0

    def wait_until_ready(self) -> None:
        """Wait for the broker's ready line. Raises LoadError if it exits or is not ready in
        time.
        """
        try:
            self.process.wait_ready(time.monotonic() + _START_S)
        except BrokerEndedError as error:
            raise LoadError(
                f"the broker did not start (exit code {error.exit_code}); see above"
            ) from None
        except BrokerLateError:
            self.process.end(signal.SIGKILL)
            raise LoadError(
                f"the broker was not ready within {_START_S:.0f} s and was killed; see above"
            ) from None
        self.address, self.ready_ms, _ = self.process.ready

    def stop(self) -> int:
        """Stop the broker with SIGTERM and return its exit code."""
        code, was_killed = self.process.end(timeout_s=_STOP_S)
        if was_killed:
            raise LoadError(f"the broker did not stop within {_STOP_S:.0f} s and was killed")
        return code

    def __enter__(self) -> TemporaryBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m kstore.pipeline.jobs.run``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="make run", description=(__doc__ or "").splitlines()[0],
        epilog="example: make run FILE=server.log ONCE=1",
    )  # fmt: skip
    parser.add_argument("--data", default="data", help="the broker's data folder (default: data)")
    parser.add_argument("--file", help="a text file; by default the Debian package list")
    parser.add_argument("--topic", help="the topic; by default named after the file")
    parser.add_argument(
        "--port", type=int, help="the port; by default 9092, or a free one if it is taken"
    )
    parser.add_argument("--once", action="store_true", help="stop the broker after the comparison")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(given)
    except (LoadError, SourceError) as error:
        print(f"kstore: {error}", file=sys.stderr)
        return 1
    except ImportError:
        print("kstore: the job needs confluent-kafka: pip install 'kstore[run]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the broker has been stopped.", file=sys.stderr)
        return 130


def _run(given: argparse.Namespace) -> int:
    source = open_source(given.file)
    data = Path(given.data).absolute()
    port = _free_port() if given.port is None else given.port
    with TemporaryBroker(data, port) as broker:
        broker.wait_until_ready()
        print(f"Broker    kstore on {broker.address}, ready {broker.ready_ms} ms after its start")
        print(
            f"Source    {source.path}, {source.size_bytes:,} bytes, one record per {source.unit}",
            flush=True,
        )
        result = load(broker.address, source, given.topic)
        print_result(result, as_json=False)
        _print_files(data, result)
        if given.once:
            code = broker.stop()
            print(f"Stopped   the broker, cleanly; the data stays in {data}")
            return code
        print(f"""
The broker is running until Ctrl-C. Try, from another terminal:
  kcat -b {broker.address} -C -t {result.topic} -o -1 -e
  {_program()} consume {result.topic} --bootstrap-server {broker.address} --offset -1 --count 1
""", flush=True)  # fmt: skip
        return _wait(broker)


def _wait(broker: TemporaryBroker) -> int:
    """Wait for Ctrl-C, or until the broker exits, which is an error."""
    try:
        code = broker.process.process.wait()
    except KeyboardInterrupt:
        broker.stop()
        print("\nStopped   the broker, cleanly")
        return 0
    raise LoadError(f"the broker exited with exit code {code}")


def _print_files(data: Path, result: LoadResult) -> None:
    folder = data / f"{result.topic}-0"
    segments = sorted(folder.glob("*.log"))
    size = sum(segment.stat().st_size for segment in segments)
    print(f"Stored    {size:,} bytes in {len(segments)} segment file(s): {folder}", flush=True)


def _program() -> str:
    program = Path(sys.executable).with_name("kstore")
    return os.path.relpath(program) if program.exists() else f"{sys.executable} -m kstore"


def _free_port() -> int:
    """The default port if it is free, else any free one."""
    reason = ""
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("localhost", port))
            except OSError as error:
                reason = str(error)
                continue
            return int(probe.getsockname()[1])
    raise LoadError(f"cannot listen on any port of localhost: {reason}")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
