"""Connections, the loop, the logs and the process, under kstore's own names and some that every
Prometheus client has.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

from kstore.broker.metrics.measured import Measured, plain
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.broker.state.work import RunningWork
from kstore.protocol.registry import APIS
from kstore.version import installed_version

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kstore._fast.disk.write_back import WriteBack
    from kstore.broker.metrics.loop_stall import LoopStall
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.log import LogDir

__all__ = ["of_cluster", "of_logs", "of_loop", "of_plane", "of_process"]

REQUESTS = Family("kstore_requests_total", "counter", "Requests that were handled, by API")
BUILD = Family("kstore_build_info", "gauge", "The version of kstore; the value is 1")
GAUGES = {
    "broker_epoch": "The epoch of this broker's registration",
    "led_partitions": "Partitions that this broker leads",
    "under_replicated_partitions": "Partitions led here whose ISR lacks a replica",
    "active_controller": "1 on the controller",
    "controller_epoch": "The controller's epoch",
    "controller_live_brokers": "Live brokers, on the controller",
    "controller_partitions": "Partitions of all topics, on the controller",
    "controller_offline_partitions": "Partitions without a leader, on the controller",
    "controller_not_preferred_leaders": "Partitions whose leader is not the first replica",
    "controller_expanding_topics": "Topics prepared for more partitions, on the controller",
    "controller_expansions_rolled_back": "Expansions that this controller has rolled back",
    "controller_shrinking_topics": "Topics with partitions that will retire or have retired, on"
    " the controller",
    "controller_contractions_rolled_back": "Contractions that this controller has rolled back",
    "controller_last_expansion_ms": "How long the last expansion took, or its rollback",
}
"""The gauges of `Membership.gauges`, in a cluster."""


def of_plane(broker: Measured) -> Metrics:
    """Connections, bytes and requests."""
    plane = broker.plane
    produce = plane.produce
    yield from plain(
        "kstore_connections", "gauge", "Open connections", len(plane.open_connections())
    )
    for name, words, value in (
        ("kstore_connections_made_total", "Accepted connections", plane.connections_made),
        ("kstore_produced_bytes_total", "Bytes of batches that clients sent", produce.bytes_in),
        ("kstore_received_bytes_total", "Bytes read from connections", plane.bytes_read),
        ("kstore_sent_bytes_total", "Bytes sent on connections", plane.bytes_out),
        ("kstore_produced_batches_total", "Batches that clients sent", produce.batches),
    ):
        yield from plain(name, "counter", words, value)
    yield from plain(
        "kstore_fetches_parked", "gauge", "Fetch requests that wait for records", plane.fetch.parked
    )
    yield from plain(
        "kstore_produces_parked", "gauge", "Produce requests that wait for followers",
        produce.waiting.parked,
    )  # fmt: skip
    yield from plain(
        "kstore_queued_request_bytes", "gauge", "Declared sizes of requests that are not read "
                                                "completely yet",
        plane.queued_bytes,
    )  # fmt: skip
    yield REQUESTS
    for api_key, count in plane.request_counts().items():
        yield sample(REQUESTS.name, count, api=APIS[api_key].name)


def of_loop(broker: Measured, stall: LoopStall) -> Metrics:
    """What blocked the loop, and how late its timers were."""
    yield from stall.metrics()
    yield from broker.holds.metrics()


def of_logs(log_manager: LogManager) -> Metrics:
    """Damage, reads from the disk, and bytes that are not written yet."""
    dirs = log_manager.dirs
    backs = _write_backs(dirs)
    for name, words, value in (
        ("index_damages", "Indexes found damaged", sum(each.index_damages for each in dirs)),
        ("damaged_parts", "Parts of segments found damaged", sum(each.damages for each in dirs)),
        ("repaired_parts", "Damaged parts restored from another replica",
         sum(each.repaired_parts for each in dirs)),
        ("lost_offsets", "Offsets whose records are lost", sum(each.lost_offsets for each in dirs)),
        ("cold_reads", "Reads of data that was not in memory",
         sum(each.pages.cold_reads for each in dirs)),
        ("cold_bytes", "Bytes of these reads", sum(each.pages.cold_bytes for each in dirs)),
        ("read_ahead_bytes", "Bytes read ahead",
         sum(each.pages.ahead_bytes for each in dirs)),
        ("written_early_bytes", "Bytes written to the disk without waiting for the system",
         sum(each.written_bytes for each in backs)),
    ):  # fmt: skip
        yield from plain(f"kstore_log_{name}_total", "counter", words, value)
    for name, words, value in (
        ("unwritten_bytes", "Bytes that wait to be written to the disk",
         sum(each.unwritten_bytes for each in backs)),
        ("dir_offline", "Log dirs that have failed", len(log_manager.failed)),
        ("unwritten_budget_bytes", "The limit of bytes that wait to be written",
         sum(each.budget_bytes for each in backs)),
    ):  # fmt: skip
        yield from plain(f"kstore_log_{name}", "gauge", words, value)


def of_cluster(broker: Measured) -> Generator[Family | str, None, dict[str, int]]:
    """This broker's role in its cluster; also returns the gauges."""
    running = RunningWork(broker.membership.gauges())
    while not running.go_on():
        yield ""
    for name, value in running.result.items():
        yield from plain(f"kstore_{name}", "gauge", GAUGES[name], value)
    return running.result


def of_process(start_s: float) -> Metrics:
    """The process. ``start_s``: when the broker began to listen, in seconds since 1970."""
    yield BUILD
    yield sample(BUILD.name, 1, version=installed_version())
    yield from plain(
        "process_cpu_seconds_total", "counter", "CPU time of the process", time.process_time()
    )
    yield from plain(
        "process_start_time_seconds",
        "gauge",
        "When the broker started to listen, since 1970",
        start_s,
    )
    yield from plain(
        "process_max_resident_memory_bytes", "gauge", "Peak memory of the process",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )  # fmt: skip


def _write_backs(dirs: Sequence[LogDir]) -> list[WriteBack]:
    return [log_dir.write_back for log_dir in dirs if log_dir.write_back is not None]
