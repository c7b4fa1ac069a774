"""BrokerConfig: precedence, the sources of values, and the errors that a user gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config import BROKER_CONFIGS, TOPIC_CONFIGS, BrokerConfig, ConfigError, SourceKind
from kstore.config import environment_name as variable
from kstore.config.broker_configs import ALIASES
from kstore.config.group_configs import GROUP_CONFIGS
from kstore.config.no_effect import NO_EFFECT, REFUSED


def load(
    text: str | None = None, *, folder: Path | None = None, env: dict[str, str] | None = None,
    **overrides: str,
) -> BrokerConfig:  # fmt: skip
    """Load from a file's text, an environment, and overrides written with underscores."""
    path = None
    if text is not None:
        assert folder is not None
        path = folder / "server.properties"
        path.write_text(text, encoding="utf-8")
    given = {key.replace("_", "."): value for key, value in overrides.items()}
    return BrokerConfig.load(path, given, env or {})


def test_override_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    env = {"KSTORE_NUM_PARTITIONS": "3", "KSTORE_MESSAGE_MAX_BYTES": "30"}
    text = "num.partitions=2\nmessage.max.bytes=20\nfetch.max.bytes=2000\n"
    config = load(text, folder=tmp_path, env=env, num_partitions="4")
    assert config["num.partitions"] == 4
    assert config.source("num.partitions").kind is SourceKind.OVERRIDE
    assert config["message.max.bytes"] == 30
    assert str(config.source("message.max.bytes")) == "environment KSTORE_MESSAGE_MAX_BYTES"
    assert config["fetch.max.bytes"] == 2000
    assert str(config.source("fetch.max.bytes")) == f"file {tmp_path}/server.properties line 3"
    assert config["delete.topic.enable"] is True
    assert str(config.source("delete.topic.enable")) == "default"
    assert config.warnings == ()


def test_data_goes_to_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(env={"XDG_DATA_HOME": "/x"})["log.dirs"] == ("/x/kstore/data",)
    monkeypatch.setenv("HOME", "/u")
    assert load(env={"XDG_DATA_HOME": "relative"})["log.dirs"] == ("/u/.local/share/kstore/data",)


def test_an_alias_sets_the_same_value() -> None:
    config = load(broker_id="7", log_dir="/d")
    assert (config["node.id"], config["broker.id"], config["log.dirs"]) == (7, 7, ("/d",))


@pytest.mark.parametrize(
    ("paths", "problem"), [("a,b,./a", "a and ./a are one folder"), ("", "is empty")]
)
def test_log_dirs_that_are_empty_or_named_twice_are_refused(paths: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(log_dirs=paths)


@pytest.mark.parametrize(
    ("key", "value", "rest"),
    [
        (
            "num.partitions", "x",
            " is 'x'; it must be a 32-bit integer, at least 1",
        ),
        (
            "num.partitions", "0",
            " is '0'; it must be a 32-bit integer, at least 1",
        ),
        (
            "num.partitions", "2147483648",
            " is '2147483648'; it must be a 32-bit integer, at least 1",
        ),
        (
            "auto.create.topics.enable", "yes",
            " is 'yes'; it must be true or false",
        ),
        (
            "kstore.flush.policy", "fast",
            " is 'fast'; it must be text, one of os, interval, always",
        ),
        (
            "log.cleanup.policy", "delete,shred",
            " is 'delete,shred'; it must be a comma-separated list, with any of compact, "
            "delete",
        ),
        (
            "log.cleaner.min.cleanable.ratio", "nan",
            " is 'nan'; it must be a number, from 0 to 1",
        ),
        (
            "num.partition", "1",
            " is not a broker config; did you mean num.partitions?",
        ),
        (
            "listeners", "localhost:9092",
            ": localhost:9092 must be NAME://host:port, such as PLAINTEXT://localhost:9092",
        ),
        (
            "listeners", "PLAINTEXT://a:70000",
            ": PLAINTEXT://a:70000 has a port above 65535",
        ),
        (
            "listeners", "PLAINTEXT://::1:9092",
            ": PLAINTEXT://::1:9092 must have its IPv6 address in brackets, as in "
            "NAME://[::1]:9092",
        ),
        (
            "listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2",
            ": PLAINTEXT://b:2 uses the name or port of PLAINTEXT://a:1 again",
        ),
        (
            "listeners", "KERBEROS://a:1",
            ": KERBEROS://a:1 uses the security protocol KERBEROS; supported are: "
            "PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL (listener.security.protocol.map gives a name"
            " its protocol)",
        ),
        (
            "listeners", "PLAINTEXT://:9092",
            " has PLAINTEXT://:9092, which no client can connect to: set advertised.listeners"
            " to an address that clients can reach, such as PLAINTEXT://localhost:9092",
        ),
        (
            "advertised.listeners", "OTHER://a:1",
            ": OTHER://a:1 uses the security protocol OTHER; supported are: PLAINTEXT, "
            "SASL_PLAINTEXT, SASL_SSL, SSL (listener.security.protocol.map gives a name its"
            " protocol)",
        ),
        (
            "authorizer.class.name", "x",
            " is 'x'; it must be text, empty or"
            " org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        (
            "super.users", "alice",
            " is 'alice'; it must be text, principals like User:alice;User:bob",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_key_value_source_and_what_is_allowed(
    key: str, value: str, rest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {key: value}, {})
    assert str(caught.value) == f"{key} (override){rest}"
    assert caught.value.key == key


def test_a_mistake_in_a_file_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.properties line 2\) is 'x'"):
        load("# a\nnum.partitions=x", folder=tmp_path)


def test_an_unknown_name_in_a_file_or_the_environment_is_a_warning(tmp_path: Path) -> None:
    config = load("log.dir.s=/a\n", folder=tmp_path, env={"KSTORE_LOGDIRS": "/b"})
    first, second = config.warnings
    assert first.endswith("line 1) is not a broker config; did you mean log.dirs?; it is ignored")
    assert "KSTORE_LOGDIRS" in second
    assert "did you mean KSTORE_LOG_DIRS?" in second


def test_the_builds_own_variables_are_no_settings() -> None:
    assert load(env={"KSTORE_DEBUG": "1", "KSTORE_MODULES": "batch"}).warnings == ()


def test_what_cannot_matter_is_accepted_and_says_so_once(tmp_path: Path) -> None:
    config = load("num.io.threads=8\nprocess.roles=broker,controller\n", folder=tmp_path)
    assert [w.partition(" (")[0] for w in config.warnings] == ["num.io.threads", "process.roles"]
    assert all("has no effect" in warning for warning in config.warnings)


def test_a_setting_given_twice_in_a_file_says_so_and_the_last_wins(tmp_path: Path) -> None:
    config = load("num.partitions=2\nnum.partitions=3\n", folder=tmp_path)
    assert config["num.partitions"] == 3
    assert "is set twice" in config.warnings[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "No such file or directory"), (b"a=\xff", "is not UTF-8 at byte 2")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig.load(path, {}, {})


def test_listeners_are_parsed_and_advertised_ones_default_to_them() -> None:
    config = load(listeners="PLAINTEXT://[::1]:9092")
    assert config.listeners == config.advertised_listeners
    assert (config.listeners[0].host, config.listeners[0].port) == ("::1", 9092)
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:9092"
    every = load(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://h:9092")
    assert (every.listeners[0].host, every.advertised_listeners[0].host) == ("", "h")


def test_a_listener_may_have_a_name_of_its_own() -> None:
    given = {
        "listeners": "CLIENTS://localhost:9092",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
    }
    (listener,) = BrokerConfig.load(None, given, {}).listeners
    assert (listener.name, listener.protocol) == ("CLIENTS", "PLAINTEXT")


def test_a_cluster_is_a_folder_or_zookeeper() -> None:
    assert not load().clustered
    assert load(kstore_coordination_dir="shared").clustered
    assert load(zookeeper_connect="localhost:2181").clustered
    with pytest.raises(ConfigError, match=r"kstore\.coordination\.dir .* and zookeeper\.connect"):
        load(kstore_coordination_dir="shared", zookeeper_connect="localhost:2181")


def test_the_brokers_own_listener_is_an_advertised_one() -> None:
    listeners = {
        "listeners": "PLAINTEXT://localhost:9092,INSIDE://localhost:9093",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    assert load(**listeners, inter_broker_listener_name="inside")["inter.broker.listener.name"]
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name .* PLAINTEXT, INSIDE"):
        load(**listeners, inter_broker_listener_name="OUTSIDE")


def test_a_topics_defaults_come_from_the_broker() -> None:
    config = load(
        log_retention_minutes="5", log_segment_bytes="1048576", log_cleanup_policy="compact"
    )
    defaults = config.topic_defaults()
    assert defaults["retention.ms"] == "300000"
    assert defaults["segment.bytes"] == "1048576"
    assert defaults["cleanup.policy"] == "compact"
    assert defaults["segment.ms"] == str(7 * 86_400_000)
    assert config.topic_default("retention.ms")[1].kind is SourceKind.OVERRIDE


def test_the_finer_unit_wins_and_minus_one_stays_minus_one() -> None:
    config = load(log_retention_ms="1000", log_retention_hours="5")
    assert config.topic_default("retention.ms")[0] == "1000"
    assert load(log_retention_hours="-1").topic_default("retention.ms")[0] == "-1"


def test_every_default_is_allowed_by_its_own_row() -> None:
    for row in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()):
        if row.default is not None:
            assert row.parse(row.format(row.default), "default") == row.default, row.name


def test_the_tables_do_not_overlap_and_every_row_is_documented() -> None:
    tables = [set(BROKER_CONFIGS), set(ALIASES), set(NO_EFFECT), set(REFUSED)]
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert all(row.documentation.endswith(".") for row in BROKER_CONFIGS.values())
    assert len({variable(name) for name in BROKER_CONFIGS}) == len(BROKER_CONFIGS)


def test_every_setting_acts() -> None:
    """A row is read by the broker, or gives a topic config its default; else it belongs in
    no_effect.py.
    """
    root = Path(__file__).parents[2]
    sources = [p.read_text("utf-8") for p in (root / "broker").rglob("*.py")]
    sources += [(root / "kstore" / "config" / f).read_text() for f in ("broker.py", "listener.py")]
    sources.append((root / "kstore" / "net" / "tls.py").read_text("utf-8"))
    defaults = {name for row in TOPIC_CONFIGS.values() for name, _ in row.synonyms}
    # Defaults and bounds of what is set for a group.
    defaults |= {
        name for row in GROUP_CONFIGS.values() for name, _ in row.synonyms
        if any(f'"{row.name}"' in source for source in sources)
    }  # fmt: skip
    bounds = (
        "group.consumer.min.",
        "group.consumer.max.",
        "group.share.min.",
        "group.share.max.",
        "group.streams.min.",
        "group.streams.max.",
    )
    idle = [
        name for name in set(BROKER_CONFIGS) - defaults
        if not name.startswith(bounds)
        and not any(f'"{name}"' in source for source in sources)
    ]  # fmt: skip
    assert sorted(idle) == []


def test_what_is_set_at_run_time_wins_and_its_removal_brings_the_starts_value_back() -> None:
    config = load(log_retention_ms="1000", message_max_bytes="5000")
    told: list[frozenset[str]] = []
    config.watch(told.append)
    config.set_dynamic(
        {"log.retention.ms": "2000", "message.max.bytes": "6000"},
        {"log.retention.ms": "3000", "num.io.threads": "9"},
    )
    assert config["log.retention.ms"] == 3000
    assert config["message.max.bytes"] == 6000
    assert config.source("log.retention.ms").kind is SourceKind.DYNAMIC_BROKER
    assert config.topic_default("max.message.bytes")[1].kind is SourceKind.DYNAMIC_CLUSTER
    config.set_dynamic({}, {})
    assert config["log.retention.ms"] == 1000
    assert config.source("message.max.bytes").kind is SourceKind.OVERRIDE
    both = frozenset({"log.retention.ms", "message.max.bytes"})
    assert told == [both, both]


def test_a_bad_value_at_run_time_changes_nothing() -> None:
    config = load(log_retention_ms="1000")
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        config.set_dynamic({"message.max.bytes": "6000"}, {"log.retention.ms": "soon"})
    assert config["message.max.bytes"] == 1_048_588
