"""Runs java/WordCounts.java, a Kafka Streams application, in separate processes, and computes its
expected output. It knows no broker.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Self

from tests.conformance.kafka_jars import KafkaUnavailableError, java_program, streams_classpath

SOURCE = Path(__file__).parent / "WordCounts.java"
WORDS = 40
WORDS_PER_LINE = 3


def lines_of(first: int, end: int) -> list[str]:
    """The lines with these numbers; words repeat unevenly."""
    return [
        " ".join(f"w{(n * 7 + i * i * 13 + n * i) % WORDS}" for i in range(WORDS_PER_LINE))
        for n in range(first, end)
    ]


def right_counts(lines: list[str]) -> dict[str, list[int]]:
    """The expected counts for each word, in this order: 1, 2, 3 ... up to its number."""
    seen = Counter(word for line in lines for word in line.split(" "))
    return {word: list(range(1, count + 1)) for word, count in seen.items()}


@functools.cache
def _classes() -> str:
    """The folder of the compiled application; KafkaUnavailableError without a Java compiler."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise KafkaUnavailableError("no `javac` on the PATH: install a Java 17 development kit")
    folder = tempfile.mkdtemp(prefix="word-counts-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [compiler, "-cp", streams_classpath(), "-d", folder, str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


class WordCounts:
    """One instance of the application; leaving its `with` stops it."""

    def __init__(self, folder: Path, name: str, topics: tuple[str, str], **settings: str) -> None:
        """Settings are Kafka Streams', with _ for a dot in their names."""
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._output = self._folder / "output"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        given["state.dir"] = str(self._folder / "state")
        self._command = [
            java_program(),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{_classes()}:{streams_classpath()}", "WordCounts", *topics),
            *(f"{key}={value}" for key, value in given.items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with the state that it has on disk."""
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, cwd=self._folder
            )

    def output(self) -> str:
        """Its output over all its starts."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def wait_running(self, deadline_s: float = 90) -> None:
        """Wait until it has its tasks and its state."""
        end = time.monotonic() + deadline_s
        while "state RUNNING" not in self.output():
            assert self._process.poll() is None, self.output()[-3000:]
            assert time.monotonic() < end, self.output()[-3000:]
            time.sleep(0.1)

    def kill(self) -> None:
        self._end(kill=True)

    def stop(self) -> None:
        """A clean stop; kill it if that takes too long."""
        self._end(kill=False)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        (process.kill if kill else process.terminate)()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
