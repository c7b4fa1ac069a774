"""Probes of the admin APIs other than topics and configs: log dirs, elections, reassignments, ACLs,
SCRAM, quorum, features, SASL on a plaintext listener.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kstore.protocol.schema import Message
from kstore.protocol.security.scram import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask

DIRECTORY = UUID("11111111-2222-3333-4444-555555555555")
NO_DIRECTORY = UUID(int=0)


@case("DescribeLogDirs", 35)
def _describe_log_dirs(peer: Peer, version: int) -> Story:
    name = f"probe-dirs-{version}"
    yield create(name, 2)
    for partitions in ([0], [0, 9], [1, 1], []):
        asked = {"topic": name, "partitions": partitions}
        yield Ask.DescribeLogDirs(topics=[asked])
    yield Ask.DescribeLogDirs(topics=[])
    absent = {"topic": "probe-absent", "partitions": [0]}
    yield Ask.DescribeLogDirs(topics=[absent])


@case("AlterReplicaLogDirs", 34)
def _alter_log_dirs(peer: Peer, version: int) -> Story:
    name = f"probe-move-{version}"
    answer = yield create(name, 2)
    answer = yield Ask.DescribeLogDirs(topics=[])
    here = answer.results[0].log_dir

    def move(path: str, topic: str, *partitions: int) -> Message:
        row = {"name": topic, "partitions": list(partitions)}
        return Ask.AlterReplicaLogDirs(dirs=[{"path": path, "topics": [row]}])

    yield Ask.AlterReplicaLogDirs()
    yield move(here, name, 1)
    yield move(here, name, 9)
    yield move(here, "probe-absent", 0)
    yield move(here, "bad name", 0)
    for path in ("/no/such/dir", "relative", here + "/", ""):
        yield move(path, name, 0)
    yield move("/no/such/dir", "probe-absent", 0)


@case("ElectLeaders", 43)
def _elect(peer: Peer, version: int) -> Story:
    name = f"probe-elect-{version}"
    yield create(name, 2)

    def elect(kind: int, *topics: tuple[str, list[int]], timeout_ms: int = 5000):
        rows = [{"topic": topic, "partitions": indexes} for topic, indexes in topics]
        return Ask.ElectLeaders(election_type=kind, topic_partitions=rows, timeout_ms=timeout_ms)

    for kind in (0, 1) if version else (0,):
        yield elect(kind, (name, [0, 1, 9]), ("probe-absent", [0]), ("bad name", [0]))
        yield elect(kind, (name, []))
        yield elect(kind, (name, [0, 0]))
        yield elect(kind)
    if version:
        yield elect(7, (name, [0]))
        yield elect(-1, (name, [0]))
    yield elect(0, (name, [0]), timeout_ms=0)


@case("AlterPartitionReassignments", 45)
def _reassign(peer: Peer, version: int) -> Story:
    name = f"probe-reassign-{version}"
    yield create(name, 3)

    def reassign(*replicas: list[int] | None, topic: str = name, change: bool = True):
        rows = [
            {"partition_index": index, "replicas": asked} for index, asked in enumerate(replicas)
        ]
        request = Ask.AlterPartitionReassignments(
            topics=[{"name": topic, "partitions": rows}], timeout_ms=5000
        )
        if version:
            request.allow_replication_factor_change = change
        return request

    for change in (True, False):
        yield reassign([1], None, [], [1], change=change)
        for wrong in ([2], [1, 1], [1, 2], [-1], [1, -5], [2, 2], [0]):
            yield reassign(wrong, change=change)
    yield reassign([1], None, topic="probe-absent")
    yield reassign([1], None, topic="bad name")
    yield reassign()
    yield Ask.AlterPartitionReassignments(timeout_ms=5000)
    yield Ask.ListPartitionReassignments(topics=None)


@case("ListPartitionReassignments", 46)
def _list_reassignments(peer: Peer, version: int) -> Story:
    yield create("probe-reassignments")
    for topic, indexes in (("probe-reassignments", [0, 9]), ("probe-absent", [0])):
        asked = {"name": topic, "partition_indexes": indexes}
        yield Ask.ListPartitionReassignments(topics=[asked])
    yield Ask.ListPartitionReassignments(topics=[])
    yield Ask.ListPartitionReassignments(topics=None)


@case("DescribeAcls", 29)
def _describe_acls(peer: Peer, version: int) -> Story:
    # Resource, pattern, operation and permission; 0 is unknown.
    for codes in ((1, 1, 1, 1), (7, 4, 15, 3), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1),
                  (1, 1, 1, 0), (8, 1, 1, 1), (1, 5, 1, 1), (1, 1, 16, 1),
                  (1, 1, 1, 4)):  # fmt: skip
        yield Ask.DescribeAcls(
            resource_type_filter=codes[0], resource_name_filter=None,
            pattern_type_filter=codes[1], principal_filter=None, host_filter=None,
            operation=codes[2], permission_type=codes[3])  # fmt: skip


@case("CreateAcls", 30)
def _create_acls(peer: Peer, version: int) -> Story:
    def row(resource: int = 2, pattern: int = 3) -> dict[str, Any]:
        return {
            "resource_type": resource, "resource_name": "x", "resource_pattern_type": pattern,
            "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip

    yield Ask.CreateAcls()
    yield Ask.CreateAcls(creations=[row(), row()])
    yield Ask.CreateAcls(creations=[row(), row(resource=0)])
    yield Ask.CreateAcls(creations=[row(pattern=9)])


@case("DeleteAcls", 31)
def _delete_acls(peer: Peer, version: int) -> Story:
    def row(resource: int = 2) -> dict[str, Any]:
        codes = {"pattern_type_filter": 3, "operation": 1, "permission_type": 1}
        return {"resource_type_filter": resource, **codes}

    yield Ask.DeleteAcls()
    yield Ask.DeleteAcls(filters=[row(), row()])
    yield Ask.DeleteAcls(filters=[row(resource=0)])


@case("SaslHandshake", 17)
def _sasl_handshake(peer: Peer, version: int) -> Story:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "none", ""):
        yield Ask.SaslHandshake(mechanism=mechanism)


@case("SaslAuthenticate", 36)
def _sasl_authenticate(peer: Peer, version: int) -> Story:
    yield Ask.SaslAuthenticate(auth_bytes=b"\0user\0secret")
    yield Ask.SaslAuthenticate(auth_bytes=b"")


@case("SCRAM credentials", 51)
def _scram(peer: Peer, version: int) -> Story:
    def put(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=iterations, salt=b"salt",
            salted_password=b"p" * 32,
        )  # fmt: skip

    def gone(user: str, mechanism: int = 1) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(name=user, mechanism=mechanism)

    def alter(*rows: ScramCredentialUpsertion | ScramCredentialDeletion):
        return Ask.AlterUserScramCredentials(
            upsertions=[row for row in rows if isinstance(row, ScramCredentialUpsertion)],
            deletions=[row for row in rows if isinstance(row, ScramCredentialDeletion)],
        )

    def describe(*users: str) -> Message:
        return Ask.DescribeUserScramCredentials(users=[{"name": u} for u in users])

    def seen(user: str, count: int) -> Step:
        """Kafka's brokers see a change a moment after the response."""
        return Step(
            describe(user), compare=False,
            until=lambda answer: answer and len(answer.results[0].credential_infos) == count,
        )  # fmt: skip

    yield alter()
    for row in (put("a"), put("a", 2, 16384), put("b", 1, 4095), put("c", 1, 16385), put("d", 3),
                put("e", 0), put(""), gone("nobody"), gone(""), gone("g", 7), gone("a", 2),
                gone("a", 2)):  # fmt: skip
        yield alter(row)
    yield seen("a", 1)
    for user in ("a", "b", "nobody", ""):
        yield describe(user)
    yield describe("a", "a")
    yield Ask.DescribeUserScramCredentials(users=None)
    yield alter(put("a"), put("a"))
    yield alter(put("a"), gone("a"))
    yield alter(put("x*+ %/é~"))
    yield seen("x*+ %/é~", 1)
    yield describe("x*+ %/é~")
    yield alter(gone("a"), gone("x*+ %/é~"))
    yield seen("x*+ %/é~", 0)
    yield Ask.DescribeUserScramCredentials(users=[])


@case("DescribeQuorum", 55)
def _quorum(peer: Peer, version: int) -> Story:
    def describe(*topics: tuple[str, list[int]]) -> Message:
        return Ask.DescribeQuorum(
            topics=[
                {"topic_name": name, "partitions": [{"partition_index": i} for i in all]}
                for name, all in topics
            ]
        )

    for partitions in ([0], [1], [0, 1]):
        yield describe(("__cluster_metadata", partitions))
    yield describe(("x", [0]))
    yield describe()


@case("AddRaftVoter", 80)
def _raft_voters(peer: Peer, version: int) -> Story:
    answer = yield Ask.DescribeCluster()
    cluster_id = answer.cluster_id
    ends = [{"name": "CONTROLLER", "host": "h", "port": 1}]
    for cluster, voter, directory in ((cluster_id, 2, DIRECTORY), (None, 2, DIRECTORY),
                                      ("x", 2, DIRECTORY), (cluster_id, 2, NO_DIRECTORY),
                                      (cluster_id, -1, DIRECTORY)):  # fmt: skip
        yield Ask.AddRaftVoter(
            cluster_id=cluster, voter_id=voter, voter_directory_id=directory, listeners=ends,
            timeout_ms=1000)  # fmt: skip
        yield Ask.RemoveRaftVoter(cluster_id=cluster, voter_id=voter, voter_directory_id=directory)
    yield Ask.AddRaftVoter(cluster_id=cluster_id, voter_id=2, voter_directory_id=DIRECTORY)


@case("UnregisterBroker", 64)
def _unregister(peer: Peer, version: int) -> Story:
    for broker_id in (0, 2, -1):
        yield Ask.UnregisterBroker(broker_id=broker_id)


@case("UpdateFeatures", 57)
def _features(peer: Peer, version: int) -> Story:
    def update(*rows: tuple[str, int, int]) -> Message:
        keys = [{"feature": n, "max_version_level": level} for n, level, _ in rows]
        for key, (_, _, kind) in zip(keys, rows, strict=True):
            if version == 0:
                key["allow_downgrade"] = kind > 1
            else:
                key["upgrade_type"] = kind
        request = Ask.UpdateFeatures(feature_updates=keys, timeout_ms=5000)
        if version:
            request.validate_only = True
        return request

    yield update()
    changing = (("eligible.leader.replicas.version", 0, 2), ("kraft.version", 1, 1))
    wrong = (("metadata.version", 29, 1), ("metadata.version", 31, 1), ("metadata.version", 6, 2),
             ("metadata.version", 0, 2), ("metadata.version", -1, 1), ("metadata.version", 29, 2),
             ("no.such", 1, 1), ("", 1, 1), ("eligible.leader.replicas.version", 0, 1),
             ("eligible.leader.replicas.version", 2, 1))  # fmt: skip
    same = (("metadata.version", 30, 1), ("kraft.version", 0, 1))
    for row in (*same, *wrong, *(changing if version else ())):
        yield update(row)
    if version:
        yield update(("metadata.version", 30, 0))
        yield update(("metadata.version", 30, 7))
        yield update(("kraft.version", 1, 2))
    yield update(same[0], wrong[6])
    yield update(same[0], same[0])


def _entry(entity: dict[str, str | None], **ops: float | None) -> dict[str, Any]:
    """The quotas of an entity; None removes one."""
    return {
        "entity": [
            {"entity_type": kind.replace("_", "-"), "entity_name": name}
            for kind, name in entity.items()
        ],
        "ops": [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in ops.items()],
    }


@case("AlterClientQuotas", 49)
def _quota_values(peer: Peer, version: int) -> Story:
    def alter(entity: dict[str, str | None], **ops: float | None) -> Message:
        return Ask.AlterClientQuotas(entries=[_entry(entity, **ops)])

    user: dict[str, str | None] = {"user": f"v{version}"}
    nan, huge = float("nan"), 1e300
    for value in (0.0, -1.0, 1.5, 1e19, 9.3e18, 1e15, nan, 1.0000001, 1.00001, huge):
        yield alter(user, producer_byte_rate=value)
    for value in (0.5, 0.0, -0.5, 300.0, huge):
        yield alter(user, request_percentage=value)
        yield alter(user, controller_mutation_rate=value)
    for value in (0.5, 0.0, 2e9, 3e9, 10.0):
        yield alter({"ip": "127.0.0.8"}, connection_creation_rate=value)
    yield alter(user, no_such=1.0)
    yield alter(user, no_such=None)
    yield alter(user, connection_creation_rate=1.0)
    yield alter({"ip": "127.0.0.8"}, producer_byte_rate=1.0)
    for address in ("localhost", "not an ip", ""):
        yield alter({"ip": address}, connection_creation_rate=1.0)
        yield alter({"ip": address}, connection_creation_rate=None)
    for entity in ({}, {"group": "g"}, {"user": ""}, {"client_id": ""}, {"ip": "127.0.0.8", **user},
                   {"ip": "127.0.0.8", "client_id": "c"}):  # fmt: skip
        yield alter(entity, producer_byte_rate=1.0)
    yield Ask.AlterClientQuotas()
    yield Ask.AlterClientQuotas(entries=[_entry(user), _entry(user)])
    both = [_entry(user, producer_byte_rate=5.0), _entry(user, consumer_byte_rate=5.0)]
    yield Ask.AlterClientQuotas(entries=both)
    yield Ask.AlterClientQuotas(entries=both[:1], validate_only=True)
    yield alter({"ip": "127.0.0.8"}, connection_creation_rate=None)
    ip = _quota_filter(("ip", 2, None))
    yield Step(ip, compare=False, until=lambda answer: answer is not None and not answer.entries)
    yield _quota_filter(("user", 0, f"v{version}"))
    rates = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    yield alter(user, **dict.fromkeys(rates), controller_mutation_rate=None)


def _quota_filter(*parts: tuple[str, int, str | None], strict: bool = False) -> Message:
    components = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in parts]
    return Ask.DescribeClientQuotas(components=components, strict=strict)


@case("DescribeClientQuotas", 48)
def _quota_filters(peer: Peer, version: int) -> Story:
    rate = {"producer_byte_rate": 1000.0}
    entities: list[dict[str, str | None]] = [
        {"user": "u 1/*"}, {"client_id": "c1"}, {"user": "u 1/*", "client_id": "c1"},
        {"user": None}, {"client_id": None}, {"user": None, "client_id": None},
        {"user": None, "client_id": "c2"}, {"user": "u2", "client_id": None},
    ]  # fmt: skip
    yield Ask.AlterClientQuotas(entries=[_entry(entity, **rate) for entity in entities])
    limits = [_entry({"ip": ip}, connection_creation_rate=9.0) for ip in ("127.0.0.9", None)]
    yield Ask.AlterClientQuotas(entries=limits)
    user, client, ip = "user", "client-id", "ip"
    # Kafka's brokers see a change a moment after the response.
    last = _quota_filter((ip, 1, None))
    yield Step(last, compare=False, until=lambda answer: bool(answer and answer.entries))
    for parts in ((), ((user, 0, "u 1/*"),), ((user, 1, None),), ((user, 2, None),),
                  ((client, 0, "c1"),), ((client, 1, None),), ((client, 2, None),),
                  ((user, 2, None), (client, 2, None)), ((user, 0, "u2"), (client, 1, None)),
                  ((user, 1, None), (client, 1, None)), ((ip, 2, None),), ((ip, 0, "127.0.0.9"),),
                  ((ip, 1, None),), ((ip, 0, "x"),), ((user, 0, "absent"),)):  # fmt: skip
        for strict in (False, True):
            yield _quota_filter(*parts, strict=strict)
    for wrong in (((ip, 2, None), (user, 2, None)), (("no", 2, None),), (("", 2, None),),
                  ((user, 3, None),), ((user, 0, None),), ((user, 1, "x"),), ((user, 2, "x"),),
                  ((user, 2, None), (user, 2, None)), (("no", 7, None),)):  # fmt: skip
        yield _quota_filter(*wrong)
    gone = [_entry(entity, producer_byte_rate=None) for entity in entities]
    gone += [_entry({"ip": ip}, connection_creation_rate=None) for ip in ("127.0.0.9", None)]
    yield Ask.AlterClientQuotas(entries=gone)
    yield Step(last, compare=False, until=lambda answer: answer is not None and not answer.entries)
    yield _quota_filter((user, 2, None), (client, 2, None))


@case("DescribeTopicPartitions pages", 75)
def _partition_pages(peer: Peer, version: int) -> Story:
    names = [f"probe-pages-{letter}" for letter in "abc"]
    for name, partitions in zip(names, (3, 1, 4), strict=True):
        yield create(name, partitions)
    first, second, third = names

    def ask(limit: int, cursor: tuple[str, int] | None = None, *topics: str):
        after = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
        asked = [{"name": name} for name in topics or names]
        return Ask.DescribeTopicPartitions(
            topics=asked, response_partition_limit=limit, cursor=after
        )

    for limit in (1, 2, 3, 4, 5, 8, 9, 2000, 5000, 0, -1):
        yield ask(limit)
    for cursor in ((first, 0), (first, 2), (first, 3), (first, 9), (second, 0), (third, 3),
                   (third, 4), (third, -1), ("probe-pages-aa", 1), ("probe-pages-z", 0),
                   ("probe-absent", 0), ("", 0)):  # fmt: skip
        for limit in (1, 2000):
            yield ask(limit, cursor)
    yield ask(2000, None, third, first)
    yield ask(2000, None, first, first)
    yield ask(2, (second, 0), third, first)
    yield ask(1, None, "probe-absent", first, "bad name", third)
    yield ask(2000, ("probe-absent", 0), "probe-absent", first)


@case("DescribeCluster endpoints", 60, 1)
def _cluster_endpoints(peer: Peer, version: int) -> Story:
    for kind in (0, 1, 2, 3):
        request = Ask.DescribeCluster(endpoint_type=kind)
        if version >= 2:
            request.include_fenced_brokers = True
        yield request
