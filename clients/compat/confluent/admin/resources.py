"""Arguments of AdminClient: topics to create, configs, ACLs, credentials, offset specifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from kstore.acls import Acl, AclFilter
from kstore.acls import AclOperation as KstoreOperation
from kstore.acls import AclPatternType as KstorePattern
from kstore.acls import AclPermission as KstorePermission
from kstore.acls import AclResourceType as KstoreResource
from kstore.clients.compat.confluent.model import enum_of

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourcePatternType",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]


class _Numbered(Enum):
    """Members compare by their values."""

    def __lt__(self, other: Any) -> Any:
        return self.value < other.value if type(self) is type(other) else NotImplemented


class ResourceType(_Numbered):
    """The type of resource of a config or an ACL, with librdkafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ResourcePatternType(_Numbered):
    """How the resource name of an ACL is matched."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Numbered):
    """The operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermissionType(_Numbered):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AlterConfigOpType(Enum):
    """How a config is changed."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(Enum):
    """The source of a config's value."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class NewTopic:
    """A topic to create; -1: the broker's default."""

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        self.topic, self.num_partitions = topic, num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment, self.config = replica_assignment, config

    def __str__(self) -> str:
        count = f",num_partitions={self.num_partitions}" if self.num_partitions >= 0 else ""
        return f"NewTopic(topic={self.topic}{count})"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewTopic) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.topic)


class NewPartitions:
    """A topic, and the number of partitions that it should have."""

    def __init__(
        self,
        topic: str,
        new_total_count: int,
        replica_assignment: list[list[int]] | None = None,
    ) -> None:
        self.topic, self.new_total_count = topic, new_total_count
        self.replica_assignment = replica_assignment

    def __str__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewPartitions) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.new_total_count))


class ConfigEntry:
    """A config and its source, or a change of one (incremental_operation)."""

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Mapping[str, ConfigEntry] | None = None,
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name, self.value, self.source = name, value, source
        self.is_read_only, self.is_default = bool(is_read_only), bool(is_default)
        self.is_sensitive, self.is_synonym = bool(is_sensitive), bool(is_synonym)
        self.synonyms = dict(synonyms or {})
        self.incremental_operation = incremental_operation

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"


class ConfigResource:
    """A resource that has configs."""

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: Any = None,
        incremental_configs: Sequence[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("Expected resource name to be a string")
        self.restype: ResourceType = enum_of(ResourceType, restype)
        self.restype_int: int = self.restype.value
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs, self.error = described_configs, error

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """A config to set."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """A change to make."""
        self.incremental_configs.append(config_entry)

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name})"

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        mine = (self.restype, self.name)
        return isinstance(other, ConfigResource) and mine == (other.restype, other.name)

    def __lt__(self, other: ConfigResource) -> bool:
        return (self.restype_int, self.name) < (other.restype_int, other.name)

    def __len__(self) -> int:
        return len(self.set_config_dict)


class AclBinding:
    """A rule."""

    def __init__(
        self,
        restype: Any,
        name: Any,
        resource_pattern_type: Any,
        principal: Any,
        host: Any,
        operation: Any,
        permission_type: Any,
    ) -> None:
        self.restype: ResourceType = enum_of(ResourceType, restype)
        self.name = name
        self.resource_pattern_type = enum_of(ResourcePatternType, resource_pattern_type)
        self.principal, self.host = principal, host
        self.operation = enum_of(AclOperation, operation)
        self.permission_type = enum_of(AclPermissionType, permission_type)
        self._check()

    def _check(self) -> None:
        for text in ("name", "principal", "host"):
            if getattr(self, text) is None:
                raise ValueError(f"Expected {text} to be not None")

    def _parts(self) -> tuple[Any, ...]:
        return (
            self.restype, self.name, self.resource_pattern_type, self.principal, self.host,
            self.operation, self.permission_type,
        )  # fmt: skip

    @classmethod
    def of(cls, acl: Acl) -> AclBinding:
        """From kstore's type."""
        return AclBinding(
            _BY_KSTORE[acl.resource_type], acl.resource_name, acl.pattern_type.value,
            acl.principal, acl.host, acl.operation.value, acl.permission.value,
        )  # fmt: skip

    def as_acl(self) -> Acl:
        """In the form of kstore's clients."""
        return Acl(
            _KSTORE[self.restype], self.name, self.principal,
            KstoreOperation(self.operation.value), KstorePermission(self.permission_type.value),
            self.host, KstorePattern(self.resource_pattern_type.value),
        )  # fmt: skip

    def as_filter(self) -> AclFilter:
        """In the form of kstore's clients."""
        return AclFilter(
            _KSTORE[self.restype], self.name, self.principal,
            KstoreOperation(self.operation.value), KstorePermission(self.permission_type.value),
            self.host, KstorePattern(self.resource_pattern_type.value),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._parts()))})"

    def __hash__(self) -> int:
        return hash(self._parts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclBinding) and self._parts() == other._parts()


class AclBindingFilter(AclBinding):
    """Matches ACLs; None matches any."""

    def _check(self) -> None:
        """No field is required."""


_KSTORE = {
    ResourceType.UNKNOWN: KstoreResource.UNKNOWN,
    ResourceType.ANY: KstoreResource.ANY,
    ResourceType.TOPIC: KstoreResource.TOPIC,
    ResourceType.GROUP: KstoreResource.GROUP,
    ResourceType.BROKER: KstoreResource.CLUSTER,
    ResourceType.TRANSACTIONAL_ID: KstoreResource.TRANSACTIONAL_ID,
}
_BY_KSTORE = {kstore: mine for mine, kstore in _KSTORE.items()}


class ScramMechanism(_Numbered):
    """SCRAM with a hash."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredentialInfo:
    """A credential's mechanism and iterations."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism, self.iterations = mechanism, iterations


class UserScramCredentialAlteration:
    """A change of a user's credentials."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A credential to set."""

    def __init__(
        self,
        user: str,
        scram_credential_info: ScramCredentialInfo,
        password: bytes,
        salt: bytes | None = None,
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password, self.salt = password, salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A credential to remove."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism


class OffsetSpec:
    """Which offset list_offsets should find; `value` is Kafka's timestamp."""

    def __init__(self, value: int) -> None:
        self.value = value

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The log start offset."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The end."""
        return cls(-1)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The record with the largest timestamp."""
        return cls(-3)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The first offset at or after a time in ms."""
        return cls(timestamp)
