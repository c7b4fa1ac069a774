"""A separate network for a test: each host has a network namespace with an address, all on one
bridge, and cables that can be cut, in both directions or one. It needs root and iproute2.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import Self


def why_not() -> str | None:
    """Why no network can be made here; None if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    probe = f"kt{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this kernel, or this container, lets nobody make network namespaces"
    _ip("netns", "del", probe)
    return None


class Network:
    """Hosts 1 to ``size``; the test itself has an address on the bridge, too."""

    def __init__(self, size: int) -> None:
        self._numbers = range(1, size + 1)
        self._name = f"kt{random.randrange(16**6):06x}"
        # One of the private networks, by chance: two test runs at once have two.
        self._net = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"

    def address(self, host: int) -> str:
        return f"{self._net}.{host}"

    def command(self, host: int) -> list[str]:
        """What goes before a command that is to run on a host."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def cut(self, source: int, target: int) -> None:
        """What the source sends to the target is lost from now on; the other way it arrives."""
        _ip("-n", self._namespace(source), "route", "add", "blackhole", self.address(target))

    def heal(self, source: int, target: int) -> None:
        _ip("-n", self._namespace(source), "route", "del", "blackhole", self.address(target))

    def isolate(self, host: int) -> None:
        """Pull a host's cable: it cannot be reached, not even by the test."""
        _ip("link", "set", self._cable(host), "down")

    def rejoin(self, host: int) -> None:
        _ip("link", "set", self._cable(host), "up")

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("addr", "add", f"{self._net}.254/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for host in self._numbers:
                self._add(host)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _add(self, host: int) -> None:
        inside = self._namespace(host)
        _ip("netns", "add", inside)
        _ip("link", "add", self._cable(host), "type", "veth", "peer", "eth0", "netns", inside)
        _ip("link", "set", self._cable(host), "master", self._name, "up")
        _ip("-n", inside, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", inside, "link", "set", "eth0", "up")
        _ip("-n", inside, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for host in self._numbers:
            _ip("netns", "del", self._namespace(host), check=False)
            _ip("link", "del", self._cable(host), check=False)
        _ip("link", "del", self._name, check=False)

    def _namespace(self, host: int) -> str:
        return f"{self._name}n{host}"

    def _cable(self, host: int) -> str:
        return f"{self._name}c{host}"


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
