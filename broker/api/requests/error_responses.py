"""Responses with one error, in the form of each API and version: for the whole request, or for some
of its partitions while the others are processed.

They are used if only the controller can answer and there is none (forwarding.py), and for injected
faults. A table describes how the rows of a request correspond to those of its response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from kstore.protocol.registry import APIS
from kstore.protocol.schema import Struct, field_type, parse_versions

__all__ = [
    "PATCHED",
    "ROWS",
    "TOPIC_APIS",
    "Rows",
    "failed",
    "field_exists",
    "keep_rows",
    "patch",
    "put_in",
    "request_partitions",
    "row_fields",
    "row_key",
    "rows_of",
    "split",
    "subject",
]

PartitionKey = tuple[str, int]
NameOf = Callable[[UUID], str]
"""Returns a topic's name by its id; "" if the id is unknown."""
WHOLE_TOPIC = -1
TOPIC_FIELDS = ("name", "topic", "topic_name")
JOIN_GROUP, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, ALTER_SCRAM = 11, 34, 35, 51
SHARE_FETCH = 78
FIRST_NULL_PROTOCOL = 7


class Rows(NamedTuple):
    """Rows of a request, and the corresponding rows of its response."""

    request_field: str
    response_field: str
    keys: tuple[tuple[str, str], ...]
    """(field of the response's row, field of the request's row, or "" if that row is a plain
    value).
    """
    inner: Rows | None = None
    error: str = "error_code"
    has_partitions: bool = True
    """Whether the rows are topics or partitions."""


def _keys(text: str) -> tuple[tuple[str, str], ...]:
    """``"name partition_index=index"``: a field with the same name in both, and one with
    two names.
    """
    return tuple(
        (response_name, request_name if equals else response_name)
        for response_name, equals, request_name in (word.partition("=") for word in text.split())
    )


def _topics(
    request_field: str, response_field: str, inner_request_field: str, inner_response_field: str,
    inner_key: str, key: str = "name", error: str = "error_code",
) -> Rows:  # fmt: skip
    """Topics, each with partitions."""
    inner = Rows(inner_request_field, inner_response_field, _keys(inner_key), None, error)
    return Rows(request_field, response_field, _keys(key), inner)


def _named(request_field: str, response_field: str, keys: str) -> Rows:
    """Rows that are not topics."""
    return Rows(request_field, response_field, _keys(keys), has_partitions=False)


_INDEX, _VALUE = "partition_index", "partition_index="
_CONFIGS = "resource_type resource_name"
ROWS: dict[int, tuple[Rows, ...]] = {
    0: (_topics("topic_data", "responses", "partition_data", "partition_responses", "index",
                "name topic_id"),),
    1: (_topics("topics", "responses", "partitions", "partitions", "partition_index=partition",
                "topic topic_id"),),
    2: (_topics("topics", "topics", "partitions", "partitions", _INDEX),),
    3: (Rows("topics", "topics", _keys("name topic_id")),),
    8: (_topics("topics", "topics", "partitions", "partitions", _INDEX, "name topic_id"),),
    9: (
        _topics("topics", "topics", "partition_indexes", "partitions", _VALUE),
        Rows("groups", "groups", _keys("group_id"), _topics(
            "topics", "topics", "partition_indexes", "partitions", _VALUE, "name topic_id")),
    ),
    10: (_named("coordinator_keys", "coordinators", "key="),),
    15: (_named("groups", "groups", "group_id="),),
    19: (Rows("topics", "topics", _keys("name")),),
    20: (Rows("topic_names", "responses", _keys("name=")),
         Rows("topics", "responses", _keys("name topic_id"))),
    21: (_topics("topics", "topics", "partitions", "partitions", _INDEX),),
    23: (_topics("topics", "topics", "partitions", "partitions", "partition", "topic"),),
    24: (
        _topics("v3_and_below_topics", "results_by_topic_v3_and_below", "partitions",
                "results_by_partition", _VALUE, "name", "partition_error_code"),
        Rows("transactions", "results_by_transaction", _keys("transactional_id"), _topics(
            "topics", "topic_results", "partitions", "results_by_partition", _VALUE, "name",
            "partition_error_code")),
    ),
    27: (Rows("markers", "markers", _keys("producer_id"), _topics(
        "topics", "topics", "partition_indexes", "partitions", _VALUE)),),
    28: (_topics("topics", "topics", "partitions", "partitions", _INDEX),),
    30: (_named("creations", "results", ""),),
    31: (_named("filters", "filter_results", ""),),
    32: (_named("resources", "results", _CONFIGS),),
    33: (_named("resources", "responses", _CONFIGS),),
    37: (Rows("topics", "results", _keys("name")),),
    42: (_named("groups_names", "results", "group_id="),),
    43: (_topics("topic_partitions", "replica_election_results", "partitions", "partition_result",
                 "partition_id=", "topic"),),
    44: (_named("resources", "responses", _CONFIGS),),
    45: (_topics("topics", "responses", "partitions", "partitions", _INDEX),),
    47: (_topics("topics", "topics", "partitions", "partitions", _INDEX),),
    49: (Rows("entries", "entries", (), _named("entity", "entity", "entity_type entity_name"),
              has_partitions=False),),
    61: (_topics("topics", "topics", "partition_indexes", "partitions", _VALUE),),
    65: (_named("transactional_ids", "transaction_states", "transactional_id="),),
    69: (_named("group_ids", "groups", "group_id="),),
    75: (Rows("topics", "topics", _keys("name")),),
    77: (_named("group_ids", "groups", "group_id="),),
    78: (_topics("topics", "responses", "partitions", "partitions", _INDEX, "topic_id"),),
    79: (_topics("topics", "responses", "partitions", "partitions", _INDEX, "topic_id"),),
    83: (_topics("topics", "results", "partitions", "partitions", "partition", "topic_id"),),
    84: (_topics("topics", "results", "partitions", "partitions", "partition", "topic_id"),),
    85: (_topics("topics", "results", "partitions", "partitions", "partition", "topic_id"),),
    86: (_topics("topics", "results", "partitions", "partitions", "partition", "topic_id"),),
    87: (_topics("topics", "results", "partitions", "partitions", "partition", "topic_id"),),
    89: (_named("group_ids", "groups", "group_id="),),
    90: (_named("groups", "groups", "group_id"),),
    91: (_topics("topics", "responses", "partitions", "partitions", _INDEX, "topic_name"),),
    92: (Rows("topics", "responses", _keys("topic_name")),),
    25300: (_topics("topics", "topics", "partitions", "partitions", _VALUE),),
    25301: (_topics("topics", "topics", "partitions", "partitions", _INDEX),),
}  # fmt: skip
"""API key to its rows. If there are several entries, each is for other versions. APIs that are not
listed have one error for the whole response.
"""
TOPIC_APIS = frozenset(key for key, rows in ROWS.items() if rows[0].has_partitions)
"""APIs whose requests name topics or partitions."""
PATCHED = frozenset({3, 75})
"""Metadata and DescribeTopicPartitions: their responses may have topics that the request does not
name.
"""
UNKNOWN = (
    "base_offset", "committed_offset", "high_watermark", "low_watermark", "node_id", "port",
    "producer_epoch",
)  # fmt: skip
"""Fields that are -1 in a response with an error, although their default is 0."""


def failed(
    request: Any, version: int, code: int, message: str, *, partitions_only: bool = False
) -> Any:
    """A response with one error for the whole request. ``partitions_only``: the error is for each
    named partition (or topic) instead.
    """
    response = APIS[request.API_KEY].response()
    error = _Error(version, code, message, partitions_only)
    found = False
    for rows in ROWS.get(request.API_KEY, ()):
        if field_exists(type(request), rows.request_field, version):
            found = True
            _fail_rows(request, response, rows, error)
    special = _SPECIAL.get(request.API_KEY)
    if special is not None:
        special(request, response, version, code, message)
    if not (found and partitions_only):
        error.put(response)
    return response


def request_partitions(request: Any, version: int, name_of: NameOf) -> Iterator[PartitionKey]:
    """The topics and partitions that a request names. Partition -1 stands for a whole topic."""
    for rows in ROWS.get(request.API_KEY, ()):
        if field_exists(type(request), rows.request_field, version):
            yield from _row_partitions(request, rows, name_of)


def split(
    request: Any, version: int, selected: Collection[PartitionKey], name_of: NameOf
) -> tuple[Any, Any | None]:
    """Split a request into one with the topics and partitions that are hit, and one with the
    others; None if there are none. A request of an API without such rows is not split.
    """
    taken: dict[str, list[Any]] = {}
    rest: dict[str, list[Any]] = {}
    for rows in ROWS.get(request.API_KEY, ()):
        if field_exists(type(request), rows.request_field, version):
            taken[rows.request_field], rest[rows.request_field] = _divide(
                request, rows, selected, name_of
            )
    mine = request.replaced(**taken) if taken else request
    return mine, request.replaced(**rest) if any(rest.values()) else None


def row_fields(api_key: int, version: int) -> tuple[str, ...]:
    """The fields of a request whose elements get separate results: topics, groups, resources."""
    cls = APIS[api_key].request
    return tuple(
        rows.request_field
        for rows in ROWS[api_key]
        if field_exists(cls, rows.request_field, version)
    )


def rows_of(request: Any, version: int) -> list[Any]:
    """The elements of `row_fields`, row by row."""
    fields = row_fields(request.API_KEY, version)
    return [row for field in fields for row in getattr(request, field) or ()]


def keep_rows(request: Any, version: int, numbers: Collection[int]) -> Any:
    """The request with only these rows, by their index in `rows_of`."""
    kept: dict[str, list[Any]] = {}
    first = 0
    for field in row_fields(request.API_KEY, version):
        found = getattr(request, field) or []
        kept[field] = [row for number, row in enumerate(found, first) if number in numbers]
        first += len(found)
    return request.replaced(**kept)


def put_in(failure: Any, response: Any, version: int) -> Any:
    """Replace rows of the response with the failure's; other fields stay."""
    for rows in ROWS.get(response.API_KEY, ()):
        if field_exists(type(response), rows.response_field, version):
            _merge(failure, response, rows, version)
    return response


def patch(response: Any, topic: str | None, partition: int | None, code: int) -> Any:
    """Write an error into a response of an API in PATCHED: for all topics, one topic, or one
    partition.
    """
    for row in response.topics:
        if topic is not None and row.name != topic:
            continue
        if partition is None:
            row.error_code = code
            row.partitions = []
        for each in row.partitions:
            if each.partition_index == partition:
                each.error_code = code
    return response


def field_exists(cls: type[Struct], name: str, version: int) -> bool:
    """Whether a version has the field."""
    low, high = parse_versions(cls.SPECS[name].versions)
    return low <= version <= high


class _Error(NamedTuple):
    """The error of rows."""

    version: int
    code: int
    message: str
    innermost: bool

    def put(self, row: Any, name: str = "error_code") -> None:
        """Write the error into a row or a response, and mark the other fields as unknown."""
        cls = type(row)
        for field, value in ((name, self.code), ("error_message", self.message)):
            if field in cls.SPECS and field_exists(cls, field, self.version):
                setattr(row, field, value)
        for field in UNKNOWN:
            if field in cls.SPECS and field_exists(cls, field, self.version):
                setattr(row, field, -1)


def _fail_rows(request_row: Any, told: Any, rows: Rows, error: _Error) -> None:
    """Add a row with the error for each row. A row that is named twice gets one."""
    _, _, cls = field_type(type(told), rows.response_field)
    assert cls is not None
    found: dict[Any, Any] = {}
    for number, item in enumerate(getattr(request_row, rows.request_field) or ()):
        values = {name: getattr(item, of) if of else item for name, of in rows.keys}
        if isinstance(item, Struct):
            values = {
                told: values[told]
                for told, of in rows.keys
                if field_exists(type(item), of, error.version)
            }
        key = tuple(values.values()) or number
        row = found.get(key)
        if row is None:
            row = found[key] = cls(**values)
            if rows.inner is None or not error.innermost:
                error.put(row, rows.error)
        if rows.inner is not None and field_exists(
            type(item), rows.inner.request_field, error.version
        ):
            _fail_rows(item, row, rows.inner, error)
    getattr(told, rows.response_field).extend(found.values())


def subject(item: Any, name_of: NameOf) -> str | None:
    """The topic of a row, or a plain topic name. None if the row is not about a topic, "" for an
    unknown id.
    """
    if isinstance(item, str):
        return item
    for name in TOPIC_FIELDS:
        if getattr(item, name, None):
            return str(getattr(item, name))
    topic_id = getattr(item, "topic_id", None)
    return None if topic_id is None else name_of(topic_id)


def _row_partitions(request: Any, rows: Rows, name_of: NameOf) -> Iterator[PartitionKey]:
    if not rows.has_partitions:
        return
    for item in getattr(request, rows.request_field) or ():
        topic = subject(item, name_of)
        if topic is None and rows.inner is not None:
            yield from _row_partitions(item, rows.inner, name_of)
        elif topic is not None and rows.inner is None:
            yield topic, WHOLE_TOPIC
        elif topic is not None and rows.inner is not None:
            for inner in getattr(item, rows.inner.request_field) or ():
                yield topic, _index(inner, rows.inner)


def _index(item: Any, rows: Rows) -> int:
    field = rows.keys[0][1]
    return int(getattr(item, field) if field else item)


def _divide(
    request: Any, rows: Rows, selected: Collection[PartitionKey], name_of: NameOf
) -> tuple[list[Any], list[Any]]:
    """Divide rows into those that are hit (or their hit parts) and the others."""
    mine: list[Any] = []
    others: list[Any] = []
    for item in getattr(request, rows.request_field) or ():
        topic = subject(item, name_of)
        inner = rows.inner
        if inner is None:
            (mine if (topic, WHOLE_TOPIC) in selected else others).append(item)
            continue
        if topic is None:
            hit, left = _divide(item, inner, selected, name_of)
        else:
            listed = getattr(item, inner.request_field) or []
            hit = [each for each in listed if (topic, _index(each, inner)) in selected]
            left = [each for each in listed if each not in hit]
        if hit:
            mine.append(item.replaced(**{inner.request_field: hit}))
        if left:
            others.append(item.replaced(**{inner.request_field: left}))
    return mine, others


def _merge(failure: Any, response: Any, rows: Rows, version: int) -> None:
    merged = list(getattr(response, rows.response_field) or ())
    known = {row_key(row, rows, version): index for index, row in enumerate(merged)}
    for row in getattr(failure, rows.response_field) or ():
        index = known.get(row_key(row, rows, version))
        if index is None:
            merged.append(row)
        elif rows.inner is None:
            merged[index] = row
        else:
            _merge(row, merged[index], rows.inner, version)
    setattr(response, rows.response_field, merged)


def row_key(row: Any, rows: Rows, version: int) -> tuple[Any, ...]:
    """The key of a row of a response."""
    fields = (name for name, _ in rows.keys if field_exists(type(row), name, version))
    return tuple(getattr(row, name) for name in fields)


# ---- answers whose rows differ from the request's ----


def _log_dirs_altered(request: Any, response: Any, version: int, code: int, message: str) -> None:
    """AlterReplicaLogDirs: topics of all log dirs together."""
    from kstore.protocol.logs.log_dirs import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirTopicResult,
    )

    named: dict[str, dict[int, None]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    response.results = [
        AlterReplicaLogDirTopicResult(topic_name=name, partitions=[
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            for index in indexes
        ])
        for name, indexes in named.items()
    ]  # fmt: skip


def _log_dirs_described(request: Any, response: Any, version: int, code: int, message: str) -> None:
    """DescribeLogDirs: before version 3, only log dirs have an error."""
    if version < 3:
        from kstore.protocol.logs.log_dirs import DescribeLogDirsResult

        response.results = [DescribeLogDirsResult(error_code=code)]


def _scram_altered(request: Any, response: Any, version: int, code: int, message: str) -> None:
    """AlterUserScramCredentials: each user once, for deletions and upsertions."""
    from kstore.protocol.security.scram import AlterUserScramCredentialsResult

    users = dict.fromkeys(row.name for row in (*request.deletions, *request.upsertions))
    response.results = [
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
        for user in users
    ]


def _not_joined(request: Any, response: Any, version: int, code: int, message: str) -> None:
    """JoinGroup: the protocol is null if the version allows that."""
    response.protocol_name = None if version >= FIRST_NULL_PROTOCOL else ""


def _nothing_acquired(request: Any, response: Any, version: int, code: int, message: str) -> None:
    """ShareFetch: no records, and its acknowledgements fail."""
    acknowledged = {
        (topic.topic_id, row.partition_index)
        for topic in request.topics for row in topic.partitions if row.acknowledgement_batches
    }  # fmt: skip
    for topic in response.responses:
        for row in topic.partitions:
            row.records = b""
            if (topic.topic_id, row.partition_index) in acknowledged:
                row.acknowledge_error_code, row.acknowledge_error_message = code, message


_SPECIAL: dict[int, Callable[[Any, Any, int, int, str], None]] = {
    ALTER_REPLICA_LOG_DIRS: _log_dirs_altered,
    DESCRIBE_LOG_DIRS: _log_dirs_described,
    ALTER_SCRAM: _scram_altered,
    JOIN_GROUP: _not_joined,
    SHARE_FETCH: _nothing_acquired,
}
