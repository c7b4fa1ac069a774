"""The Grafana board and Prometheus's rules in ops/: each metric that they name is on the page of a
broker, and promtool accepts the rules and finds that they fire when they should.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.testing import Broker
from kstore.types import TopicPartition

OPS = Path(__file__).parents[2] / "ops"
BOARD = OPS / "grafana" / "kstore.json"
RULES = OPS / "prometheus" / "kstore.rules.yml"
SCRAPING = OPS / "prometheus" / "prometheus.yml"
METRIC = re.compile(r"\b(?:kafka|kstore|process)_\w+")
RECORDED = re.compile(r"\bkstore:\w+")
FIRES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'kafka_controller_kafkacontroller_activecontrollercount{{instance="a",cluster="m"}}'
        values: '1 1 0 0 0 0'
      - series: 'kafka_controller_kafkacontroller_activecontrollercount{{instance="b",cluster="m"}}'
        values: '0 0 0 0 0 0'
    alert_rule_test:
      - {{eval_time: 1m, alertname: KstoreNoController, exp_alerts: []}}
      - eval_time: 5m
        alertname: KstoreNoController
        exp_alerts:
          - exp_labels: {{cluster: m, severity: critical}}
            exp_annotations:
              summary: "The cluster has 0 controllers instead of one"
              description: "Without a controller no leader is elected and no topic changes."
  - interval: 1m
    input_series:
      - series: >-
          kafka_topic_partition_current_offset{{cluster="m",instance="a",topic="t",partition="0"}}
        values: '100 200'
      - series: >-
         kafka_consumergroup_current_offset{{cluster="m",consumergroup="g",topic="t",partition="0"}}
        values: '90 150'
    promql_expr_test:
      - expr: kstore:consumergroup_lag
        eval_time: 1m
        exp_samples:
          - labels: >-
              kstore:consumergroup_lag{{cluster="m",consumergroup="g",topic="t",partition="0"}}
            value: 50
"""


@pytest.fixture(scope="module")
def on_the_page(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all samples of a broker that has a topic, a group, requests and an error."""
    with Broker(tmp_path_factory.mktemp("board")) as broker:
        with AdminClient(bootstrap_servers=broker.address) as admin:
            admin.create_topics([NewTopic("orders", 1)])
            admin.create_topics([NewTopic("orders", 1)], raise_errors=False)
        with Producer(bootstrap_servers=broker.address) as producer:
            producer.send("orders", value=b"v")
            producer.flush()
        with Consumer(bootstrap_servers=broker.address, group_id="g") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.commit({TopicPartition("orders", 0): 1})
        with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    return {sample.name for family in families for sample in family.samples}


def test_the_board_names_metrics_that_a_broker_has(on_the_page: set[str]) -> None:
    board = json.loads(BOARD.read_text("utf-8"))
    queries = [
        target["expr"] for panel in board["panels"] for target in panel.get("targets", [])
    ] + [row["definition"] for row in board["templating"]["list"] if "definition" in row]
    named = {name for query in queries for name in METRIC.findall(query)}
    assert len(named) > 30
    assert named - on_the_page - HOLDS == set()
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


HOLDS = {"kstore_loop_hold_seconds_sum"}
"""A broker that was never held for a millisecond has no sample of it, only its HELP and TYPE."""


def test_the_rules_name_metrics_that_a_broker_has(on_the_page: set[str]) -> None:
    text = RULES.read_text("utf-8")
    named = set(METRIC.findall(text))
    assert len(named) > 12
    assert named - on_the_page - HOLDS == set()
    recorded = set(re.findall(r"- record: (\S+)", text))
    assert set(RECORDED.findall(text)) == recorded


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
def test_promtool_accepts_the_rules_and_they_fire(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yml"
    cases.write_text(FIRES.format(rules=RULES), "utf-8")
    config = tmp_path / "prometheus.yml"
    text = SCRAPING.read_text("utf-8").replace("/etc/prometheus/kstore-token", "/dev/null")
    config.write_text(text.replace("kstore.rules.yml", str(RULES)), "utf-8")
    for arguments in (["check", "config", config], ["test", "rules", cases]):
        done = subprocess.run(
            ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
