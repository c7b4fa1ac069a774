"""Checks of progress: groups that lag, and transactions that stay open."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kstore.cli.doctor.cluster import ClusterView, name_of
from kstore.cli.doctor.findings import Check, Finding, Limits, Severity, counted
from kstore.cli.doctor.partition_checks import shortened

__all__ = ["PROGRESS_CHECKS"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING
DEFAULT_MAX_TIMEOUT_MS = 900_000


def group_lag(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Groups with more records to read than the limit."""
    for group_id, offsets in view.committed.items():
        lags = {tp: view.ends[tp] - offset for tp, offset in offsets.items() if tp in view.ends}
        lag = sum(max(each, 0) for each in lags.values())
        if lag <= limits.lag_records:
            continue
        group = view.groups[group_id]
        worst = max(lags, key=lambda tp: lags[tp])
        meaning = (
            "Its members read more slowly than producers write, or one of them is stuck."
            if group.members
            else "No consumer reads: the group has no members."
        )
        yield Finding(
            WARNING, f"group {group_id}",
            f"{counted(lag, 'record')} to read, {lags[worst]:,} of them in {name_of(worst)}; state "
            f"{group.state}, {counted(len(group.members), 'member')}",
            meaning, f"kstore group describe {group_id}; then start members, or add some",
        )  # fmt: skip


def lost_offsets(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Committed offsets outside the log: the group never saw records, or they no longer exist."""
    for group_id, offsets in view.committed.items():
        known = {tp: at for tp, at in offsets.items() if tp in view.starts and tp in view.ends}
        early = [tp for tp, at in known.items() if at < view.starts[tp]]
        late = [tp for tp, at in known.items() if at > view.ends[tp]]
        for found, where in ((early, "before the log start"), (late, "after the log end")):
            if not found:
                continue
            tp = found[0]
            ends = f"the log has {view.starts[tp]} to {view.ends[tp]}"
            yield Finding(
                ERROR, f"group {group_id}",
                f"{counted(len(found), 'offset')} {where}: {name_of(tp)} at {known[tp]}, {ends}",
                "Retention deleted records before the group read them." if found is early
                else "The topic was created again, or lost records. auto.offset.reset applies now.",
                f"kstore group reset-offsets {group_id} --topic {tp.topic} --to-earliest",
            )  # fmt: skip


def long_transactions(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Transactions that their coordinators know and that have been open for long."""
    now_ms = round(time.time() * 1000)
    listed = view.admin.list_transactions(min_duration_ms=limits.transaction_ms)
    found = view.admin.describe_transactions(
        [row.transactional_id for row in listed], raise_errors=False
    )
    for row in found.values():
        if row.start_time_ms < 0:
            continue
        names = shortened([name_of(tp) for tp in row.partitions])
        yield Finding(
            WARNING, f"transaction {row.transactional_id}",
            f"{row.state} for {(now_ms - row.start_time_ms) / 1000:,.0f} s on {names}; its "
            f"timeout is {row.timeout_ms / 1000:,.0f} s",
            "Readers with isolation.level=read_committed wait there until it ends.",
            f"kstore txn abort --transactional-id {row.transactional_id} (its producer is fenced)",
        )  # fmt: skip


def hanging_transactions(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Transactions that are open on a partition and that no coordinator will end."""
    longest = view.broker_value("transaction.max.timeout.ms") or DEFAULT_MAX_TIMEOUT_MS
    age_ms = int(longest) if limits.hanging_ms is None else limits.hanging_ms
    found = view.admin.find_hanging_transactions(
        view.partitions,
        now_ms=round(time.time() * 1000),
        max_timeout_ms=age_ms,
    )
    for each in found:
        tp, producer = each.partition, each.producer
        yield Finding(
            ERROR, name_of(tp),
            f"producer {producer.producer_id} (epoch {producer.producer_epoch}) has had a "
            f"transaction open since offset {producer.txn_start_offset}; no coordinator knows it",
            "Readers with isolation.level=read_committed wait there forever.",
            f"kstore txn abort {name_of(tp)} --start-offset {producer.txn_start_offset}",
        )  # fmt: skip


PROGRESS_CHECKS: tuple[Check[ClusterView], ...] = (
    Check("lag", "groups that lag", group_lag),
    Check("group-offsets", "committed offsets outside the log", lost_offsets),
    Check("long-transactions", "transactions that are open for long", long_transactions),
    Check(
        "hanging-transactions", "transactions that no coordinator will end", hanging_transactions
    ),
)
