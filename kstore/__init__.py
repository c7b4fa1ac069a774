"""kstore: an embedded durable log, and a broker, cluster and clients that speak Apache Kafka's wire
protocol.

`open_log` and `open_log_dir` open the embedded log. `scan` reads a topic as Arrow data. The clients
are in `kstore.clients`, and brokers for tests in `kstore.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["__version__", "open_log", "open_log_dir", "scan"]

if TYPE_CHECKING:
    from kstore.log import open_log, open_log_dir
    from kstore.pipeline.scanning.scan import scan

    __version__: str


def __getattr__(name: str) -> Any:
    """Import an attribute on first use, so that `import kstore` does no work."""
    if name == "__version__":
        from kstore.version import installed_version

        return installed_version()
    if name in {"open_log", "open_log_dir"}:
        from kstore import log

        return getattr(log, name)
    if name == "scan":
        from kstore.pipeline.scanning.scan import scan

        return scan
    raise AttributeError(f"module 'kstore' has no attribute {name!r}")
