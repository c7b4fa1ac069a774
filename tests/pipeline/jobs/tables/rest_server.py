"""Runs in a separate environment: an Iceberg REST catalog for tests, on PyIceberg's catalog in a
SQLite file. It serves what a client needs to maintain tables: namespaces, tables, commits.

rest_server.py FOLDER TOKEN prints its port; tables are below FOLDER/warehouse

A POST to /lose/N makes it answer the next N commits with an error after it has carried them out.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.update import AssertRefSnapshotId

Answer = tuple[int, Any]
ERRORS: dict[type[Exception], tuple[int, str]] = {
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


class Catalog:
    """Answers to requests, one after the other."""

    def __init__(self, folder: str) -> None:
        self._catalog = SqlCatalog(
            "rest", uri=f"sqlite:///{folder}/rest.db", warehouse=f"file://{folder}/warehouse"
        )
        self._lock = threading.Lock()
        self._to_lose = 0

    def answer(self, method: str, path: list[str], body: Any) -> Answer:
        """Status and JSON."""
        with self._lock:
            try:
                return self._answer(method, path, body)
            except tuple(ERRORS) as error:
                print(repr(error), file=sys.stderr)
                code, name = ERRORS[type(error)]
                return code, failure(code, name, str(error))

    def _answer(self, method: str, path: list[str], body: Any) -> Answer:
        match method, path:
            case "POST", ["lose", number]:
                self._to_lose = int(number)
                return 200, {}
            case "GET", ["v1", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["v1", "namespaces"]:
                self._catalog.create_namespace(tuple(body["namespace"]), body.get("properties", {}))
                return 200, body
            case "GET" | "HEAD", ["v1", "namespaces", namespace]:
                levels = tuple(namespace.split("\x1f"))
                properties = self._catalog.load_namespace_properties(levels)
                return 200, {"namespace": levels, "properties": properties}
            case "POST", ["v1", "namespaces", namespace, "tables"]:
                made = self._catalog.create_table(
                    (*namespace.split("\x1f"), body["name"]),
                    Schema.model_validate(body["schema"]),
                    partition_spec=PartitionSpec.model_validate(body["partition-spec"]),
                    properties=body.get("properties", {}),
                )
                return 200, loaded(made)
            case "GET" | "HEAD", ["v1", "namespaces", namespace, "tables", table]:
                return 200, loaded(self._catalog.load_table((*namespace.split("\x1f"), table)))
            case "POST", ["v1", "namespaces", namespace, "tables", table]:
                return self._commit((*namespace.split("\x1f"), table), body)
            case "POST", ["v1", "namespaces", _, "tables", _, "metrics"]:
                return 204, None
        return 404, failure(404, "NoSuchEndpoint", f"{method} {path}")

    def _commit(self, name: tuple[str, ...], body: Any) -> Answer:
        table = self._catalog.load_table(name)
        identifier = {"namespace": name[:-1], "name": name[-1]}
        asked = CommitTableRequest.model_validate(body | {"identifier": identifier})
        # PyIceberg refuses a tag in the first commit, which REST's specification allows: the
        # requirement is that there is no such reference.
        required = tuple(
            each
            for each in asked.requirements
            if not (isinstance(each, AssertRefSnapshotId) and is_absent(each, table))
        )
        self._catalog.commit_table(table, required, asked.updates)
        if self._to_lose:
            self._to_lose -= 1
            return 500, failure(500, "InternalServerError", "the answer was lost")
        return 200, loaded(self._catalog.load_table(name))


def loaded(table: Table) -> Any:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def is_absent(required: AssertRefSnapshotId, table: Table) -> bool:
    """Whether the request requires that a reference does not exist, and it does not."""
    return required.snapshot_id is None and required.ref not in table.metadata.refs


def failure(code: int, name: str, message: str) -> Any:
    return {"error": {"message": message, "type": name, "code": code}}


def main(folder: str, token: str) -> None:
    catalog = Catalog(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            if self.headers.get("Authorization") != f"Bearer {token}":
                code, found = 401, failure(401, "NotAuthorizedException", "who are you?")
            else:
                code, found = catalog.answer(self.command, path, body)
            data = b"" if found is None else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_HEAD = _handle  # noqa: N815 - the library's names

        def log_message(self, format: str, *arguments: Any) -> None:
            print(format % arguments, file=sys.stderr)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
