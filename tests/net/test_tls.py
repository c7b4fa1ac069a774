"""TLS contexts from Kafka's settings: what a handshake between two of them comes to."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from kstore.config import ConfigError
from kstore.config.security_configs import SECURITY_CONFIGS
from kstore.net.tls import client_context, server_context, store_files

DEFAULTS = {row.name: row.default for row in SECURITY_CONFIGS}
PASSWORD = "not-to-be-told"


class Party:
    """A certificate authority and a certificate of it, in every form."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        leaf = self.ca.issue_cert("localhost", "127.0.0.1")
        self.key_text = leaf.private_key_pem.bytes().decode()
        self.chain_text = "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)
        self.ca_text = self.ca.cert_pem.bytes().decode()
        self.key = load_pem_private_key(self.key_text.encode(), None)
        self.certificate = x509.load_pem_x509_certificate(self.chain_text.encode())

    def write(self, name: str, data: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def keystore(self) -> dict[str, Any]:
        path = self.write("key.pem", self.key_text + self.chain_text)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": path}

    def truststore(self) -> dict[str, Any]:
        path = self.write("ca.pem", self.ca_text)
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def settings(*parts: dict[str, Any], **named: Any) -> dict[str, Any]:
    found = dict(DEFAULTS)
    for part in parts:
        found |= part
    return found | {f"ssl.{name.replace('_', '.')}": value for name, value in named.items()}


def shake(server: dict[str, Any], client: dict[str, Any], host: str = "localhost") -> str:
    """The TLS version that the two agree on; ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client_context(client).wrap_bio(to_client, to_server, server_hostname=host)
    far = server_context(server).wrap_bio(to_server, to_client, server_side=True)
    waiting = [near, far]
    while waiting:
        for link in list(waiting):
            try:
                link.do_handshake()
                waiting.remove(link)
            except ssl.SSLWantReadError:
                pass
    far.write(b"x")
    assert near.read(1) == b"x"
    return str(near.version())


def test_a_pem_file_and_pem_text_do(party: Party) -> None:
    client = settings(party.truststore())
    assert shake(settings(party.keystore()), client) == "TLSv1.3"
    one_line = party.key_text.replace("\n", " ")
    text = {
        "ssl.keystore.type": "PEM", "ssl.keystore.key": one_line,
        "ssl.keystore.certificate.chain": party.chain_text,
    }  # fmt: skip
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": party.ca_text}
    assert shake(settings(text), settings(trust)) == "TLSv1.3"


def test_where_there_are_no_files_in_memory_a_temporary_one_is_removed(
    party: Party, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    paths: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def noted(context: ssl.SSLContext, path: str, **named: Any) -> None:
        paths.append(path)
        assert Path(path).stat().st_mode & 0o077 == 0
        load(context, path, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    assert shake(settings(party.keystore()), settings(party.truststore())) == "TLSv1.3"
    assert [Path(path).parent for path in paths] == [tmp_path], "not below /dev/fd"
    assert not any(Path(path).exists() for path in paths)


def test_an_encrypted_key_needs_its_password(party: Party) -> None:
    form = PrivateFormat.PKCS8
    locked = party.key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(PASSWORD.encode()))
    path = party.write("locked.pem", locked.decode() + party.chain_text)
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": path}
    client = settings(party.truststore())
    assert shake(settings(store, key_password=PASSWORD), client)
    for wrong in (None, "other"):
        with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
            server_context(settings(store, key_password=wrong))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_does_as_java_reads_it(party: Party, kind: str) -> None:
    lock = BestAvailableEncryption(PASSWORD.encode())
    ca = x509.load_pem_x509_certificate(party.ca_text.encode())
    key = pkcs12.serialize_key_and_certificates(
        b"broker",
        party.key,
        party.certificate,
        [ca],
        lock,  # type: ignore[arg-type]
    )
    trust = pkcs12.serialize_key_and_certificates(b"ca", None, None, [ca], lock)
    server = settings(
        {"ssl.keystore.type": kind, "ssl.keystore.location": party.write("key.p12", key)},
        keystore_password=PASSWORD,
    )
    client = settings(
        {"ssl.truststore.type": kind, "ssl.truststore.location": party.write("ca.p12", trust)},
        truststore_password=PASSWORD,
    )
    assert shake(server, client) == "TLSv1.3"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password is not its password") as told:
        server_context(server | {"ssl.keystore.password": "wrong"})
    assert PASSWORD not in str(told.value)
    assert "wrong" not in str(told.value)
    empty = party.write("empty.p12", trust)
    with pytest.raises(ConfigError, match="no key"):
        server_context(server | {"ssl.keystore.location": empty})


def test_a_certificate_has_to_be_the_hosts_unless_nobody_looks(party: Party) -> None:
    server, client = settings(party.keystore()), settings(party.truststore())
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        shake(server, client, "elsewhere.example")
    assert shake(server, client | {"ssl.endpoint.identification.algorithm": ""}, "elsewhere")


def test_a_stranger_is_not_trusted(party: Party, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Party(tmp_path_factory.mktemp("other"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(settings(party.keystore()), settings(other.truststore()))


def test_clients_show_certificates_where_they_are_asked(
    party: Party, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Party(tmp_path_factory.mktemp("stranger"))
    client = settings(party.truststore())
    asking = settings(party.keystore(), party.truststore(), client_auth="required")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake(asking, client)
    assert shake(asking, client | party.keystore())
    with pytest.raises(ssl.SSLError):
        shake(asking, client | stranger.keystore())
    requesting = asking | {"ssl.client.auth": "requested"}
    assert shake(requesting, client)
    with pytest.raises(ssl.SSLError):
        shake(requesting, client | stranger.keystore())


def test_both_ends_have_to_speak_one_version(party: Party) -> None:
    server, client = settings(party.keystore()), settings(party.truststore())
    old = {"ssl.enabled.protocols": ("TLSv1.2",)}
    assert shake(server, client | old) == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"):
        shake(server | {"ssl.enabled.protocols": ("TLSv1.3",)}, client | old)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ssl.keystore.location": None}, "needs a key"),
        ({"ssl.keystore.location": "/nowhere/key.pem"}, "can't be read: No such file"),
        ({"ssl.keystore.key": "x"}, "both set"),
        ({"ssl.keystore.type": "JKS"}, "set ssl.keystore.type=PEM"),
        ({"ssl.enabled.protocols": ("TLSv1.1",)}, "must be any of TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": ("TLS_AES_128_GCM_SHA256",)}, "TLS 1.3 needs all of its suites"),
        ({"ssl.cipher.suites": ("TLS_OF_MINE",)}, "not known to the TLS library"),
        ({"ssl.client.auth": "required", "ssl.truststore.certificates": "x"}, "can't be used"),
    ],
)
def test_what_cannot_be_used_is_told(party: Party, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        server_context(settings(party.keystore()) | changes)


def test_text_without_its_certificate_and_files_that_are_none_are_told(party: Party) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.certificate\.chain"):
        server_context(settings({"ssl.keystore.key": party.key_text}))
    for data, words in ((b"\xfe\xed\xfe\xed..", "old JKS format"), (b"junk", "not a PKCS12")):
        path = party.write("store", data)
        with pytest.raises(ConfigError, match=words):
            server_context(settings({"ssl.keystore.location": path}))
    path = party.write("store", "junk")
    with pytest.raises(ConfigError, match="can't be used"):
        server_context(settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": path}))


def test_the_files_of_a_context_are_known(party: Party) -> None:
    given = settings(party.keystore(), party.truststore())
    assert store_files(given) == (
        given["ssl.keystore.location"], given["ssl.truststore.location"]
    )  # fmt: skip
    assert store_files(settings()) == ()
    assert NoEncryption()
