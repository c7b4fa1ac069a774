"""The page of metrics, as Prometheus's own parsers read it."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_form

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.broker.metrics.requests import RequestTimesPart, quantile_ms
from kstore.broker.state.exposition import OPENMETRICS, TEXT, Family, form_for, page_lines, sample
from kstore.clients import AdminClient, Consumer, NewTopic, Producer, quota_entity
from kstore.testing import Broker, Cluster
from tests.broker.harness.wire import ask
from tests.plain_messages import Ask

PREFERS_OPENMETRICS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(broker: Broker, accept: str = "") -> tuple[str, str]:
    """The page's content type, and the page."""
    request = urllib.request.Request(f"{broker.http_url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(families: Any) -> Samples:
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in families for each in family.samples
    }  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that names three partitions; topics of two and of four, and a group with a lag."""
    settings = {"kstore.metrics.max.partitions": "3", "offsets.topic.num.partitions": "1"}
    with Broker(tmp_path_factory.mktemp("page"), settings) as broker:
        with AdminClient(bootstrap_servers=broker.address) as admin:
            admin.create_topics([NewTopic("orders", 2), NewTopic("rest", 4)])
            slow = {quota_entity(client_id="slow"): {"producer_byte_rate": 100_000.0}}
            admin.alter_client_quotas(slow)
        with Producer(bootstrap_servers=broker.address, client_id="slow") as producer:
            for number in range(10):
                producer.send("orders", value=b"v", partition=number % 2)
            for number in range(4):
                producer.send("rest", value=b"v", partition=number)
            producer.flush()
        with Consumer(bootstrap_servers=broker.address, group_id='g"\n\\') as consumer:
            from kstore.types import TopicPartition

            consumer.assign([TopicPartition("orders", 0)])
            consumer.commit({TopicPartition("orders", 0): 3})
        yield broker


@pytest.fixture(scope="module")
def told(broker: Broker) -> Samples:
    return samples(text_form(read(broker)[1]))


def test_openmetrics_is_told_to_who_prefers_it(broker: Broker) -> None:
    kind, page = read(broker, PREFERS_OPENMETRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = list(openmetrics(page))
    assert page.endswith("# EOF\n")
    kind, page = read(broker)
    assert kind.startswith("text/plain; version=0.0.4")
    in_text = list(text_form(page))
    assert {each.name for each in in_text} == {each.name for each in families}
    assert all(each.documentation and each.type for each in families)
    assert {each.type for each in families} <= {"counter", "gauge", "histogram", "summary"}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text; version=1.0.0; q=0.2, text/plain; q=0.5", TEXT),
        (PREFERS_OPENMETRICS, OPENMETRICS),
        ("application/openmetrics-text; q=x", TEXT),
    ],
)
def test_the_form_is_the_one_that_accept_names_with_the_larger_weight(
    accept: str, form: Any
) -> None:
    assert form_for(accept) == form


def test_topics_are_told_under_the_names_of_jmx_exporters_rules(told: Samples) -> None:
    of_orders = (("topic", "orders"),)
    start = "kafka_server_brokertopicmetrics_"
    assert told[f"{start}messagesin_total", of_orders] == 10
    assert told[f"{start}messagesin_total", (("topic", "rest"),)] == 4
    assert told[f"{start}messagesin_total", ()] >= 14
    assert told[f"{start}bytesin_total", of_orders] > 0
    assert told[f"{start}totalproducerequests_total", of_orders] >= 2
    assert told[f"{start}failedproducerequests_total", of_orders] == 0
    assert told["kafka_log_log_logendoffset", (("partition", "0"), ("topic", "orders"))] == 5
    assert told["kafka_log_log_size", (("partition", "1"), ("topic", "orders"))] > 0
    assert told["kafka_cluster_partition_underreplicated", (("partition", "0"), *of_orders)] == 0


def test_what_is_above_the_limit_is_in_one_sum_and_said(told: Samples) -> None:
    named = {labels for name, labels in told if name == "kafka_log_log_logendoffset"}
    assert len(named) == 3 + 1
    others = (("partition", ""), ("topic", "(others)"))
    ends = {key[1]: value for key, value in told.items() if key[0] == "kafka_log_log_logendoffset"}
    assert ends[others] == 3 + 1, "three records of `rest`, one of __consumer_offsets"
    assert told["kstore_metrics_summed_up", (("of", "partitions"),)] == 6 + 1 - 3
    assert told["kstore_metrics_summed_up", (("of", "topics"),)] == 0


def test_a_groups_lag_is_told(told: Samples) -> None:
    place = (("consumergroup", 'g"\n\\'), ("partition", "0"), ("topic", "orders"))
    assert told["kafka_consumergroup_current_offset", place] == 3
    assert told["kafka_consumergroup_lag", place] == 2
    assert told["kafka_consumergroup_lag_sum", (place[0], place[2])] == 2
    assert told["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] == 1
    assert told["kafka_coordinator_group_groupmetadatamanager_numoffsets", ()] == 1


def test_the_replica_manager_and_the_controller_are_told(told: Samples) -> None:
    assert told["kafka_server_replicamanager_leadercount", ()] == 7
    assert told["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
    assert told["kafka_server_replicamanager_isrshrinks_total", ()] == 0
    assert told["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert told["kafka_controller_kafkacontroller_offlinepartitionscount", ()] == 0
    assert told["kafka_controller_kafkacontroller_globalpartitioncount", ()] == 7
    assert told["kafka_server_socket_server_metrics_connection_count",
                (("listener", "PLAINTEXT"),)] >= 0  # fmt: skip


def test_quotas_are_told_and_what_clients_use_of_them(told: Samples) -> None:
    bound = ("client_id", "slow"), ("quota", "producer_byte_rate")
    assert told["kstore_quota_bound", bound] == 100_000
    used = ("clientId", "slow"), ("resource", "Produce"), ("user", "")
    assert told["kafka_server_quota_byte_rate", used] > 0
    assert told["kstore_throttled_connections", ()] == 0
    assert told["kstore_throttles_total", ()] == 0
    assert told["kstore_throttle_seconds_total", ()] == 0


def test_requests_are_told_with_their_parts(told: Samples) -> None:
    start, of = "kafka_network_requestmetrics_", (("request", "Produce"),)
    count = told[f"{start}totaltimems_count", of]
    assert count == told[f"{start}requests_total", of] > 0
    for part in ("requestqueue", "local", "remote", "responsequeue", "responsesend"):
        assert told[f"{start}{part}timems_count", of] == count
    api = ("api", "Produce")
    assert told["kstore_request_seconds_bucket", (api, ("le", "+Inf"))] == count
    assert told["kstore_request_seconds_sum", (api,)] > 0


@pytest.mark.parametrize(
    ("buckets", "quantile", "ms"),
    [([0, 0, 4], 0.5, 0.003), ([1, 0, 1], 0.5, 0.001), ([0, 0, 0, 10], 1.0, 0.008)],
)
def test_a_quantile_lies_between_the_bounds_of_its_bucket(
    buckets: list[int], quantile: float, ms: float
) -> None:
    assert quantile_ms(buckets, quantile) == ms


def test_quantiles_forget_what_came_more_than_two_minutes_ago() -> None:
    parts = dict.fromkeys(("queue", "local", "disk", "remote", "behind", "send", "total"))
    counts = [0] * 28

    def page(now_s: float) -> str:
        times = {0: dict.fromkeys(parts, (10 * sum(counts), sum(counts), list(counts)))}
        plane: Any = SimpleNamespace(
            times=SimpleNamespace(by_api=lambda: times), request_counts=dict,
            table=SimpleNamespace(errors=SimpleNamespace(counts={})),
        )  # fmt: skip
        [median] = [
            line for line in told.metrics(plane, {}, now_s)
            if isinstance(line, str) and "_totaltimems{" in line and 'quantile="0.5"' in line
        ]  # fmt: skip
        return median.rpartition(" ")[2]

    told = RequestTimesPart()
    counts[20] = 10  # slow ones
    assert page(1000.0) == page(1010.0) == "786.432"
    counts[1] = 10
    assert page(1060.0) == "0.0015", "what came since the page at 1000"
    counts[20] += 20
    assert page(1100.0) == "655.36", "all that came since the page at 1000"
    assert page(1120.0) == "786.432", "what came since the page at 1060"


def errors_of(broker: Broker) -> dict[str, tuple[str, float]]:
    """API to an error and how often."""
    counted = samples(text_form(read(broker)[1]))
    name = "kafka_network_requestmetrics_errors_total"
    return {dict(labels)["request"]: (dict(labels)["error"], value)
            for (each, labels), value in counted.items() if each == name}  # fmt: skip


@pytest.mark.slow
def test_errors_are_counted_by_api_wherever_an_answer_has_them(tmp_path: Path) -> None:
    lost = [
        {"topic": "lost", "partitions": [{"partition": n} for n in range(3)]}
    ]  # fmt: skip
    commit = Ask.OffsetCommit(
        group_id="g",
        topics=[
            {
                "name": f"lost-{number}",
                "partitions": [{"partition_index": 0, "committed_offset": 1}],
            }
            for number in range(4)
        ],
    )
    with Broker(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        for _ in range(2):  # the second answer is a kept one
            ask(broker.address, Ask.Metadata(topics=[{"name": "lost"}]), 8)
        ask(broker.address, Ask.Fetch(topics=lost), 11)
        ask(broker.address, commit, 7)
        found = errors_of(broker)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert found == {"Metadata": (unknown, 2), "Fetch": (unknown, 3), "OffsetCommit": (unknown, 4)}


@pytest.mark.slow
def test_errors_of_metadata_that_makes_topics_first_count_too(tmp_path: Path) -> None:
    with Broker(tmp_path, {"default.replication.factor": "3"}) as broker:
        ask(broker.address, Ask.Metadata(topics=[{"name": "lost"}]), 8)
        assert errors_of(broker) == {"Metadata": ("INVALID_REPLICATION_FACTOR", 1)}


@pytest.mark.slow
def test_throttle_times_in_answers_are_added_up_by_api(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        with AdminClient(bootstrap_servers=broker.address) as admin:
            admin.create_topics([NewTopic("orders", 1)])
            slow = {quota_entity(client_id="slow"): {"producer_byte_rate": 1000.0}}
            admin.alter_client_quotas(slow)
        with Producer(bootstrap_servers=broker.address, client_id="slow") as producer:
            for _ in range(2):
                producer.send("orders", value=bytes(15_000), partition=0)
                producer.flush()
        counted = samples(text_form(read(broker)[1]))
    start = "kafka_network_requestmetrics_throttletimems"
    assert counted[f"{start}_sum", (("request", "Produce"),)] > 0
    assert counted[f"{start}_count", (("request", "Produce"),)] >= 2
    assert counted[f"{start}_sum", (("request", "Metadata"),)] == 0


def test_of_nothing_there_is_no_quantile() -> None:
    assert math.isnan(quantile_ms([0, 0], 0.5))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5, 12])
@pytest.mark.parametrize(("form", "parse"), [(TEXT, text_form), (OPENMETRICS, openmetrics)])
def test_any_value_and_any_label_is_read_as_it_was(value: float, form: Any, parse: Any) -> None:
    label = 'a"b\\c\nd\\n{}é'
    family = Family("things", "gauge", 'Of "all" kinds \\ of things')
    page = "\n".join((*page_lines([family, sample("things", value, of=label)], form), ""))
    [found] = parse(page)
    [row] = found.samples
    assert found.documentation == family.help
    assert row.labels == {"of": label}
    assert row.value == value or math.isnan(value)


def test_without_the_right_nothing_is_told_by_name(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",
        "kstore.http.principal": "User:scraper",
    }
    with Broker(tmp_path, settings) as broker:
        with AdminClient(bootstrap_servers=broker.address) as admin:
            admin.create_topics([NewTopic("hidden", 1)])
        assert "hidden" in read(broker)[1]
        with AdminClient(bootstrap_servers=broker.address) as admin:
            only = AclResourceType.CLUSTER, "kafka-cluster", "User:admin", AclOperation.DESCRIBE
            admin.create_acls([Acl(*only)])
        page = read(broker, PREFERS_OPENMETRICS)[1]
        assert "hidden" not in page
        found = samples(openmetrics(page))
        assert ("kafka_server_brokertopicmetrics_messagesin_total", ()) in found


@pytest.mark.slow
def test_a_follower_counts_the_bytes_that_it_has_copied(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", replicas={0: [1, 2]})])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for _ in range(3):
                producer.send("orders", value=bytes(200), partition=0).result()
        pages = {node: samples(text_form(read(cluster[node])[1])) for node in (1, 2)}
    start, of = "kafka_server_brokertopicmetrics_", ()
    out = pages[1][f"{start}replicationbytesout_total", of]
    assert out > 3 * 200
    assert pages[2][f"{start}replicationbytesin_total", of] == out
    assert pages[1][f"{start}replicationbytesin_total", of] == 0
