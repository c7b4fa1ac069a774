"""docs/differences.md, made from the tables of this folder and from those of kstore.config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.differences import clients, cluster, groups, requests, security, settings, spark, storage
from docs.differences.table import Difference

__all__ = ["page"]

INTRODUCTION = """\
# Differences from Kafka

The reference is Apache Kafka 4.3.1. This page lists all differences that clients and
administrators can see. For kstore's additions to Kafka's protocol, see
[protocol extensions](protocol-extensions.md). Any other difference is a bug.

The tables are generated from the code in `docs/differences` and `kstore/config`. A test checks that
this page is up to date; `python -m docs.differences` writes it."""
NO_EFFECT = """
kstore accepts these settings, so Kafka's configuration files work. The broker logs each of them
that is set, and DescribeConfigs says why it has no effect."""
REFUSED = """
kstore cannot do what these settings ask for. The broker does not start with such a setting, and
refuses to change it at run time, unless the value is the default."""

AREAS: tuple[tuple[str, str, tuple[Difference, ...]], ...] = (
    ("Requests and answers", "", requests.RECORDS),
    ("Limits", "", requests.LIMITS),
    ("Requests that no client sends", "", requests.ODD_REQUESTS),
    ("Groups", "", groups.ROWS),
    ("Logs", "", storage.ROWS),
    ("Cluster", "", cluster.ROWS),
    ("Security", "", security.ROWS),
    ("kstore's clients", "Compared with the Java clients of Kafka 4.3.1.", clients.ROWS),
)
SPARK = (
    ("Spark: the source", spark.SOURCE),
    ("Spark: the sink", spark.SINK),
)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = list(head)
    yield ""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for title, about, rows in AREAS:
        yield f"\n## {title}"
        if about:
            yield f"\n{about}"
        yield from _table(("What", "Kafka 4.3.1", "kstore", "Why"), rows)
    yield "\n## Settings that have no effect"
    yield NO_EFFECT
    yield from _table(("Settings", "Of", "Why"), settings.no_effect())
    yield "\n## Settings that are refused"
    yield REFUSED
    yield from _table(("Settings", "What to do"), settings.refused())
    yield "\n## Other defaults"
    yield from _table(("Setting", "Kafka 4.3.1", "kstore", "Why"), settings.defaults())
    for title, rows in SPARK:
        yield f"\n## {title}"
        yield from _table(("What", "Spark's connector for Kafka", "kstore", "Why"), rows)


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()) + "\n"
