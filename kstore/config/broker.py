"""BrokerConfig: the settings of one broker, each with its typed value and its source.

Precedence, weakest first: default, file, environment, override, then run-time settings of the
cluster and of this broker. It reads the given file and environment and prints nothing: ``warnings``
has the messages for users.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from kstore.config.broker_configs import ALIASES, BROKER_CONFIGS, listener_base
from kstore.config.definition import ConfigDef, ConfigError
from kstore.config.listener import Listener, parse_listeners
from kstore.config.nearest import did_you_mean
from kstore.config.properties import parse_properties
from kstore.config.topic_configs import TOPIC_CONFIGS

__all__ = ["BrokerConfig", "ConfigSource", "SourceKind", "environment_name"]

_PREFIX = "KSTORE_"
_LISTENER_PREFIX = "listener.name."
# Variables of the build, the tests and the clients, which are not settings of a broker.
_OTHER_VARIABLES = {
    "KSTORE_ASAN",
    "KSTORE_BOOTSTRAP_SERVER",
    "KSTORE_CONFORMANCE_AGAINST",
    "KSTORE_DEBUG",
    "KSTORE_INSTALL",
    "KSTORE_KAFKA_JARS",
    "KSTORE_MODULES",
}


class SourceKind(StrEnum):
    """The sources of a value, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OVERRIDE = "override"
    DYNAMIC_CLUSTER = "dynamic cluster-wide"
    DYNAMIC_BROKER = "dynamic"


class ConfigSource(NamedTuple):
    """The source of a value: its kind, and the line of the file or the variable's name."""

    kind: SourceKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.detail}" if self.detail else str(self.kind)


class _Given(NamedTuple):
    """A setting as text, before it is checked."""

    name: str
    text: str
    source: ConfigSource


def environment_name(name: str) -> str:
    """Return the environment variable of a setting: ``KSTORE_LOG_DIRS`` for ``log.dirs``."""
    return _PREFIX + name.removeprefix("kstore.").upper().replace(".", "_")


class BrokerConfig:
    """The settings of one broker, read with ``config["num.partitions"]``.

    Created by ``BrokerConfig.load``; the constructor takes checked values, including ``log.dirs``.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        sources: Mapping[str, ConfigSource],
        warnings: Iterable[str] = (),
        given: Mapping[str, str] | None = None,
    ) -> None:
        self._values = {name: values.get(name, row.default) for name, row in BROKER_CONFIGS.items()}
        self._sources = dict(sources)
        self._listener_values = {
            name: value for name, value in values.items() if name.startswith(_LISTENER_PREFIX)
        }
        self._at_start = (self._values, self._sources)
        self._watchers: list[Callable[[frozenset[str]], None]] = []
        self.given: Mapping[str, str] = given or {}
        """The settings of file, environment and overrides, as text, including those without
        effect.
        """
        self.warnings = tuple(warnings)
        self.listeners: tuple[Listener, ...] = parse_listeners(
            self, "listeners", self._values["listeners"]
        )
        self.advertised_listeners: tuple[Listener, ...] = _advertised(self)
        _check_cluster(self)

    @property
    def clustered(self) -> bool:
        """Whether this broker belongs to a cluster, whose brokers share a coordination store."""
        return bool(self["kstore.coordination.dir"] or self["zookeeper.connect"])

    @property
    def inter_broker_listener(self) -> Listener:
        """The address and security protocol that other brokers use for this one."""
        name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        wanted = (self[name] or "").upper()
        for listener in self.advertised_listeners:
            if wanted and listener.name == wanted:
                return listener
            given = self.source(protocol).kind is not SourceKind.DEFAULT
            if not wanted and given and listener.protocol == self[protocol]:
                return listener
        return self.advertised_listeners[0]

    @property
    def listener_protocols(self) -> dict[str, str]:
        """The security protocol of each advertised listener."""
        return {each.name: each.protocol for each in self.advertised_listeners}

    @property
    def sends_epochs(self) -> bool:
        """Whether responses contain partition epochs (KIP-232) and counts (KIP-253): on a single
        broker, and in a cluster whose protocol has them.
        """
        return not self.clustered or bool(self["inter.broker.protocol.version"] != "4.2")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        overrides: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Read the settings; ``environ`` is ``os.environ`` when None.

        Raises ConfigError for a file that can't be read, an invalid value, and an unknown name in
        ``overrides``. An unknown name in the file or the environment is a warning, because a file
        may be shared with Kafka.
        """
        environ = os.environ if environ is None else environ
        given = [] if path is None else _from_file(Path(path))
        given += _from_environment(environ)
        given += [
            _Given(name, text, ConfigSource(SourceKind.OVERRIDE))
            for name, text in (overrides or {}).items()
        ]
        values: dict[str, Any] = {}
        sources: dict[str, ConfigSource] = {}
        warnings: list[str] = []
        texts: dict[str, str] = {}
        for name, text, source in given:
            row = _row(name, text, source, warnings)
            texts[name] = text.strip()
            if row is None:
                continue
            if row.name in sources and sources[row.name].kind is source.kind:
                warnings.append(
                    f"{row.name} is set twice ({sources[row.name]}, {source}); the last is used"
                )
            values[row.name] = row.parse(text, str(source))
            sources[row.name] = source
        if "log.dirs" not in values:
            values["log.dirs"] = (_default_log_dir(environ),)
        _check_log_dirs(values["log.dirs"], sources.get("log.dirs"))
        return cls(values, sources, warnings, texts)

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Apply run-time settings, of the cluster and, with precedence, of this broker; they
        replace earlier ones. Names without effect are ignored.

        Raises ConfigError for an invalid value, and changes nothing then.
        """
        values, sources = dict(self._at_start[0]), dict(self._at_start[1])
        layers = ((SourceKind.DYNAMIC_CLUSTER, cluster), (SourceKind.DYNAMIC_BROKER, broker))
        for kind, layer in layers:
            for name, text in layer.items():
                row = BROKER_CONFIGS.get(name)
                if row is not None:
                    values[name] = row.parse(text, str(kind))
                    sources[name] = ConfigSource(kind)
        changed = frozenset(name for name in values if values[name] != self._values[name])
        self._values, self._sources = values, sources
        if changed:
            for tell in self._watchers:
                tell(changed)

    def watch(self, tell: Callable[[frozenset[str]], None]) -> None:
        """Call ``tell(names)`` after each change at run time, with the names of the changed
        settings.

        Code that reads ``config["the.name"]`` at each use does not need this.
        """
        self._watchers.append(tell)

    def __getitem__(self, name: str) -> Any:
        name = ALIASES.get(name, name)
        if name not in self._values:
            raise KeyError(
                f"there is no broker config {name!r}{did_you_mean(name, BROKER_CONFIGS)}"
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in ALIASES

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, typed value) of every setting, in the order of the table."""
        return iter(self._values.items())

    def source(self, name: str) -> ConfigSource:
        """Return the source of a setting's value."""
        return self._sources.get(ALIASES.get(name, name), ConfigSource(SourceKind.DEFAULT))

    def for_listener(self, listener: str, name: str) -> Any:
        """Return the value of ``listener.name.LISTENER.NAME`` at the start, or None."""
        return self._listener_values.get(f"{_LISTENER_PREFIX}{listener.lower()}.{name}")

    def text(self, name: str) -> str:
        """Return a setting's value in Kafka's format; a password is hidden."""
        name = ALIASES.get(name, name)
        return BROKER_CONFIGS[name].format(self[name])

    def topic_default(self, name: str) -> tuple[str, ConfigSource]:
        """Return a topic config's default on this broker, as text, and its source."""
        row = TOPIC_CONFIGS[name]
        for synonym, factor in row.synonyms:
            value = self[synonym]
            if value is not None:
                if factor != 1 and value >= 0:
                    value *= factor
                return row.format(value), self.source(synonym)
        return row.format(row.default), ConfigSource(SourceKind.DEFAULT)

    def topic_defaults(self) -> dict[str, str]:
        """Return every topic config's default on this broker, as text (the form for LogConfig)."""
        return {name: self.topic_default(name)[0] for name in TOPIC_CONFIGS}


def _default_log_dir(environ: Mapping[str, str]) -> str:
    home = environ.get("XDG_DATA_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return str(base / "kstore" / "data")


def _from_file(path: Path) -> list[_Given]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 at byte {error.start}; save it as UTF-8 or write \\uXXXX there"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from None
    return [
        _Given(entry.key, entry.value, ConfigSource(SourceKind.FILE, f"{path} line {entry.line}"))
        for entry in parse_properties(text, str(path))
    ]


def _check_log_dirs(paths: Sequence[str], source: ConfigSource | None) -> None:
    if not paths:
        raise ConfigError(f"log.dirs ({source}) is empty: name a folder, or omit the setting")
    known: dict[str, str] = {}
    for path in paths:
        place = os.path.realpath(path)
        if place in known:
            raise ConfigError(f"log.dirs ({source}): {known[place]} and {path} are one folder")
        known[place] = path


def _from_environment(environ: Mapping[str, str]) -> list[_Given]:
    return [
        _Given(_named_by(variable), text, ConfigSource(SourceKind.ENVIRONMENT, variable))
        for variable, text in sorted(environ.items())
        if variable.startswith(_PREFIX) and variable not in _OTHER_VARIABLES
    ]


def _named_by(variable: str) -> str:
    """The setting of an environment variable; the variable itself if there is none."""
    name = variable.removeprefix(_PREFIX).lower().replace("_", ".")
    for candidate in (name, f"kstore.{name}"):
        if environment_name(candidate) == variable and _is_known(candidate):
            return candidate
    return variable


def _is_known(name: str) -> bool:
    if name in BROKER_CONFIGS or name in ALIASES:
        return True
    from kstore.config.no_effect import NO_EFFECT, REFUSED  # large: not for every start

    return name in NO_EFFECT or name in REFUSED


def _row(name: str, text: str, source: ConfigSource, warnings: list[str]) -> ConfigDef | None:
    """Find the table's row of a name; None, with a warning, if it has no effect."""
    known_as = name
    row = BROKER_CONFIGS.get(ALIASES.get(name, name))
    if row is not None:
        return row
    if name.startswith(_LISTENER_PREFIX):
        listener, _, rest = name.removeprefix(_LISTENER_PREFIX).partition(".")
        known_as = listener_base(rest) or name
        if known_as in BROKER_CONFIGS:
            name = f"{_LISTENER_PREFIX}{listener.lower()}.{rest}"
            return BROKER_CONFIGS[known_as]._replace(name=name)
    from kstore.config.no_effect import NO_EFFECT, REFUSED

    if known_as in NO_EFFECT:
        why = NO_EFFECT[known_as].documentation.removeprefix("No effect here: ").removesuffix(".")
        warnings.append(f"{name} ({source}) has no effect: {why}")
        return None
    if name in REFUSED:
        refused, instead = REFUSED[name]
        if refused.format(refused.default) == text.strip():
            return None
        raise ConfigError(f"{name} ({source}) can't be used: {instead}", key=name)
    if source.kind is SourceKind.ENVIRONMENT:
        known: Iterable[str] = [environment_name(known) for known in BROKER_CONFIGS]
    else:
        known = (*BROKER_CONFIGS, *ALIASES)
    sentence = f"{name} ({source}) is not a broker config{did_you_mean(name, known)}"
    if source.kind is SourceKind.OVERRIDE:
        raise ConfigError(sentence, key=name)
    warnings.append(sentence + "; it is ignored")
    return None


def _advertised(config: BrokerConfig) -> tuple[Listener, ...]:
    given = config["advertised.listeners"]
    if given:
        advertised = parse_listeners(config, "advertised.listeners", given)
        unknown = {a.name for a in advertised} - {b.name for b in config.listeners}
        if unknown:
            raise ConfigError(
                f"advertised.listeners ({config.source('advertised.listeners')}) names "
                f"{sorted(unknown)[0]}, "
                "which is not in listeners",
                key="advertised.listeners",
            )
    else:
        advertised = config.listeners
    for listener in advertised:
        if listener.host in {"", "0.0.0.0", "::"}:
            key = "advertised.listeners" if given else "listeners"
            raise ConfigError(
                f"{key} ({config.source(key)}) has {listener}, which no client can connect to: "
                "set "
                f"advertised.listeners to an address that clients can reach, such as "
                f"{listener.name}://localhost:{listener.port}",
                key=key,
            )
    return advertised


def _check_cluster(config: BrokerConfig) -> None:
    """Check settings of a cluster that depend on each other."""
    folder, name = "kstore.coordination.dir", "inter.broker.listener.name"
    if config[folder] and config["zookeeper.connect"]:
        raise ConfigError(
            f"{folder} ({config.source(folder)}) and zookeeper.connect "
            f"({config.source('zookeeper.connect')}) are both set: the first is for brokers that "
            "share one machine, the second for brokers on several; remove one",
            key=folder,
        )
    listener = config[name]
    known = [each.name for each in config.advertised_listeners]
    protocol = "security.inter.broker.protocol"
    if config.source(protocol).kind is not SourceKind.DEFAULT:
        if listener:
            raise ConfigError(
                f"{name} ({config.source(name)}) and {protocol} ({config.source(protocol)}) are "
                "both set, but have the same meaning: remove one",
                key=name,
            )
        if config[protocol] not in {each.protocol for each in config.advertised_listeners}:
            raise ConfigError(
                f"{protocol} ({config.source(protocol)}) is {config[protocol]}, which no listener "
                "has: add one to listeners",
                key=protocol,
            )
    if listener and listener.upper() not in known:
        raise ConfigError(
            f"{name} ({config.source(name)}) is {listener!r}; it must be one of "
            f"{', '.join(known)}, which are advertised",
            key=name,
        )
