"""The schemas of a subject in a registry (Confluent's REST interface, which Apicurio and Karapace
also serve): all versions, because a topic has values of all of them.
"""

from __future__ import annotations

import base64
import binascii
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from kstore.pipeline.columns.decoding import Schema
from kstore.pipeline.columns.types import ColumnTypeError

__all__ = ["RegistryError", "subject_schemas"]

TIMEOUT_S = 30.0
_KINDS = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}


class RegistryError(Exception):
    """A request to the registry failed."""


def subject_schemas(url: str, subject: str, kind: str) -> dict[int | None, Schema]:
    """The schemas of all versions by id. Raises RegistryError, and ColumnTypeError if one is not of
    `kind`.
    """
    registry = _Registry(url)
    found: dict[int | None, Schema] = {}
    for version in registry.get(f"/subjects/{_quoted(subject)}/versions"):
        answer = registry.version(subject, version, kind)
        has = _KINDS.get(answer.get("schemaType", "AVRO"), answer.get("schemaType"))
        if has != kind:
            raise ColumnTypeError(f"version {version} of subject {subject} is {has}, not {kind}")
        found[int(answer["id"])] = registry.schema(answer, kind)
    if not found:
        raise RegistryError(f"{url} has no version of subject {subject}")
    return found


class _Registry:
    """A registry. The URL may contain a user and password."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            user = f"{urllib.parse.unquote(parts.username)}:"
            login = user + urllib.parse.unquote(parts.password or "")
            encoded = base64.b64encode(login.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        request = urllib.request.Request(self._shown + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            message = error.read(500).decode(errors="replace")
            raise RegistryError(f"{self._shown}{path} answers {error.code}: {message}") from None
        except (OSError, ValueError) as error:
            raise RegistryError(
                f"the schema registry {self._shown} does not answer: {error}"
            ) from None

    def version(self, subject: str, version: int | str, kind: str) -> Any:
        """One version of a subject."""
        form = "?format=serialized" if kind == "protobuf" else ""
        return self.get(f"/subjects/{_quoted(subject)}/versions/{version}{form}")

    def schema(self, answer: Mapping[str, Any], kind: str) -> Schema:
        """The schema in a response, with the schemas that it refers to."""
        references = self._references(answer, kind)
        if kind == "protobuf":
            files = [_file(each, name) for name, each in references.items()]
            return Schema(kind, files=(*files, _file(answer["schema"], "")))
        return Schema(kind, answer["schema"], references=references)

    def _references(self, answer: Mapping[str, Any], kind: str) -> dict[str, str]:
        """By name, dependencies first."""
        found: dict[str, str] = {}
        for each in answer.get("references") or ():
            other = self.version(each["subject"], each["version"], kind)
            found |= self._references(other, kind)
            found[each["name"]] = other["schema"]
        return found


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _file(text: str, name: str) -> bytes:
    """A Protobuf file, under the name by which others import it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        raise ColumnTypeError(
            "the registry has no Protobuf descriptors (format=serialized): give a descriptor "
            "set as --schema, if the values have no schema id"
        ) from None
    if name:
        file.name = name
    return bytes(file.SerializeToString())
