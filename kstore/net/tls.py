"""TLS contexts from Kafka's ssl.* settings, for both ends of a connection: PEM and PKCS12 stores,
and PEM text in settings. It opens no connection.

Keys that are not in a PEM file are passed to the TLS library through an anonymous memory file; they
are never written to disk, and no message contains a password or a key.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kstore.config import ConfigError

__all__ = ["client_context", "server_context", "store_files"]

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS13_SUITES = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
PEM_MARK = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
JKS_MAGIC = b"\xfe\xed\xfe\xed"
KEYSTORE, TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"


def server_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """The context of the listening end. Raises ConfigError for contradictory settings, or files
    that can't be used. A key is required. Without a trust store, the system's is used if clients
    are asked for certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, settings)
    if not _load_key(context, settings):
        raise ConfigError(
            "a listener with TLS needs a key and its certificate: set ssl.keystore.type=PEM and "
            f"{KEYSTORE} to a file with both",
            key=KEYSTORE,
        )
    context.verify_mode = CLIENT_AUTH[settings["ssl.client.auth"]]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """The context of the connecting end, with its own certificate if there is one. Raises
    ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, settings)
    context.check_hostname = bool(settings["ssl.endpoint.identification.algorithm"])
    _load_key(context, settings)
    _load_trust(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def store_files(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The files for contexts."""
    return tuple(settings[name] for name in (KEYSTORE, TRUSTSTORE) if settings[name])


def _set_versions(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    name = "ssl.enabled.protocols"
    unknown = [each for each in settings[name] if each not in VERSIONS]
    wanted = [VERSIONS[each] for each in settings[name] if each in VERSIONS]
    if unknown or not wanted:
        raise ConfigError(
            f"{name} is {','.join(settings[name])!r}; it must be any of {', '.join(VERSIONS)}",
            key=name,
        )
    suites = tuple(settings.get("ssl.cipher.suites") or ())
    newest = set(suites) & TLS13_SUITES
    if suites and not newest:
        wanted = [each for each in wanted if each is not ssl.TLSVersion.TLSv1_3]
    if suites and newest == set(suites):
        wanted = [each for each in wanted if each is ssl.TLSVersion.TLSv1_3]
    if not wanted:
        raise _bad_suites(suites, f"none of them belongs to a version of {name}")
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    _set_suites(context, suites)


def _set_suites(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Python selects the suites up to TLS 1.2, by OpenSSL's names; TLS 1.3 has its own."""
    if newest := set(suites) & TLS13_SUITES:
        missing = TLS13_SUITES - newest
        if missing:
            raise _bad_suites(
                suites,
                "TLS 1.3 needs all of its suites here: add "
                f"{', '.join(sorted(missing))}, or remove those of TLS 1.3",
            )
    older = [each for each in suites if each not in TLS13_SUITES]
    for each in older:
        try:
            context.set_ciphers(_openssl_name(each))
        except ssl.SSLError:
            raise _bad_suites(suites, f"{each} is not known to the TLS library") from None
    if older:
        context.set_ciphers(":".join(_openssl_name(each) for each in older))


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC_SHA", "_SHA")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    prefix = "" if exchange == "RSA" or not cipher else f"{exchange}-"
    return (prefix + (cipher or suite)).replace("_", "-")


def _bad_suites(suites: tuple[str, ...], problem: str) -> ConfigError:
    name = "ssl.cipher.suites"
    return ConfigError(f"{name} is {','.join(suites)!r}: {problem}", key=name)


# ---- keys ----


def _load_key(context: ssl.SSLContext, settings: Mapping[str, Any]) -> bool:
    """Load the key and certificates into the context; returns whether there are any."""
    location, inline = settings[KEYSTORE], settings["ssl.keystore.key"]
    password = settings["ssl.key.password"]
    if location and inline:
        raise ConfigError(f"{KEYSTORE} and ssl.keystore.key are both set: remove one", key=KEYSTORE)
    if inline:
        chain = settings["ssl.keystore.certificate.chain"]
        if not chain:
            raise ConfigError(
                "ssl.keystore.key needs its certificate: set ssl.keystore.certificate.chain",
                key="ssl.keystore.certificate.chain",
            )
        _use_key(context, _pem_text(inline) + _pem_text(chain), password, "ssl.keystore.key")
    elif location:
        data = _read(location, KEYSTORE)
        if settings["ssl.keystore.type"].upper() != "PEM":
            data = _key_of_pkcs12(data, settings)
            password = None
        _use_key(context, data, password, KEYSTORE)
    return bool(location or inline)


@contextmanager
def _file_of(pem: bytes) -> Iterator[str]:
    """The path of a file that only this user can read, for a library that reads a path twice: in
    memory on Linux. On other systems it is a temporary file, which is deleted: there /dev/fd can't
    be read again from the beginning.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kstore-tls", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            yield file.name


def _use_key(context: ssl.SSLContext, pem: bytes, password: str | None, name: str) -> None:
    try:
        with _file_of(pem) as path:
            # Without a password the library would ask for one at the terminal.
            context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, OSError) as problem:
        reason = getattr(problem, "reason", None) or problem.strerror or "it is not PEM"
        raise ConfigError(
            f"{name} can't be used ({reason}): it must have an unencrypted key, or one whose "
            "ssl.key.password is set, and the certificates of the key",
            key=name,
        ) from None


def _key_of_pkcs12(data: bytes, settings: Mapping[str, Any]) -> bytes:
    """A key store as PEM: the key, its certificate, and its chain."""
    from cryptography.hazmat.primitives import serialization

    key, certificate, others = _pkcs12(data, settings["ssl.keystore.password"], KEYSTORE)
    if key is None or certificate is None:
        raise ConfigError(f"{KEYSTORE} has no key with its certificate", key=KEYSTORE)
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for each in (certificate, *others):
        pem += each.public_bytes(serialization.Encoding.PEM)
    return pem


# ---- trust ----


def _load_trust(context: ssl.SSLContext, settings: Mapping[str, Any], purpose: ssl.Purpose) -> None:
    location, inline = settings[TRUSTSTORE], settings["ssl.truststore.certificates"]
    name = TRUSTSTORE if location else "ssl.truststore.certificates"
    if location and inline:
        raise ConfigError(f"{TRUSTSTORE} and {name} are both set: remove one", key=TRUSTSTORE)
    if not location and not inline:
        context.load_default_certs(purpose)
        return
    if inline:
        pem = _pem_text(inline).decode()
    else:
        data = _read(location, TRUSTSTORE)
        if settings["ssl.truststore.type"].upper() == "PEM":
            pem = data.decode("ascii", "replace")
        else:
            pem = _certificates_of_pkcs12(data, settings)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise ConfigError(f"{name} can't be used ({reason})", key=name) from None


def _certificates_of_pkcs12(data: bytes, settings: Mapping[str, Any]) -> str:
    from cryptography.hazmat.primitives import serialization

    _, own, others = _pkcs12(data, settings["ssl.truststore.password"], TRUSTSTORE)
    every = [*others] if own is None else [own, *others]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in every).decode()


# ---- stores ----


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise ConfigError(
            f"{name} is {path!r}, which can't be read: {problem.strerror or problem}", key=name
        ) from None


def _pkcs12(data: bytes, password: str | None, name: str) -> tuple[Any, Any, list[Any]]:
    """Key, its certificate and the others. Java also reads PKCS12 with the type JKS."""
    form = name.replace("location", "type")
    if data.startswith(JKS_MAGIC):
        raise ConfigError(
            f"{name} is a store in Java's old JKS format, which is not supported: convert it to "
            "PKCS12 (keytool -importkeystore -deststoretype PKCS12) or PEM",
            key=name,
        )
    if data.lstrip().startswith(b"-----"):
        raise ConfigError(f"{name} is a PEM file: set {form}=PEM", key=form)
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{name} is a PKCS12 store, which needs a library: pip install 'kstore[tls]', "
            f"or use PEM with {form}=PEM",
            key=name,
        ) from None
    try:
        return pkcs12.load_key_and_certificates(data, (password or "").encode() or None)
    except ValueError:
        hint = name.replace("location", "password")
        raise ConfigError(
            f"{name} is not a PKCS12 store, or {hint} is not its password", key=name
        ) from None


def _pem_text(text: str) -> bytes:
    """PEM from one line of a properties file, in which line ends may have become spaces."""
    words = text.strip()
    if "\n" not in words:
        words = PEM_MARK.sub(r"\n\g<0>\n", words)
    lines = (line.strip() for line in words.splitlines())
    return "\n".join((*(_joined(line) for line in lines if line), "")).encode()


def _joined(line: str) -> str:
    return line if line.startswith("-----") else line.replace(" ", "\n")
