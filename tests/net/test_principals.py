"""kstore/net/principals.py: names as Java writes them, and Kafka's mapping rules."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from kstore.config import ConfigError
from kstore.net.principals import MappingRules, subject_name

# Subjects in DER, and the names that Java 17's X500Principal gives them.
JAVA = [
    (
        "3033310b30090603550406130244453111300f060355040a0c082378203b3c3e225c3111300f06035504030c"
        "08612c20623d632364",
        r"CN=a\, b\=c\#d,O=\#x \;\<\>\"\\,C=DE",
    ),
    (
        "3073310d300b060355040c1304626f7373310b3009060355040913027374310a3008060355040813"
        "015331133011060a0992268993f22c64011916036f72673114301206092a864886f70d0109011605"
        "6140622e63311e300b0603550403130444756b65300f060a0992268993f22c640101130178",
        "CN=Duke+UID=x,1.2.840.113549.1.9.1=#16056140622e63,DC=org,ST=S,STREET=st,"
        "2.5.4.12=#1304626f7373",
    ),
    ("301a310c300a060355040b1303206220310a30080603550403130178", "CN=x,OU=\\ b\\ "),
    ("300b3109300706035504031300", "CN="),
]


def certificate(subject: bytes) -> bytes:
    """As much of one as matters."""

    def part(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    before = part(0xA0, b"") + part(2, b"\1") + part(0x30, b"") * 3
    size = len(before) + len(subject)
    inner = bytes((0x30, 0x82)) + size.to_bytes(2) + before + subject
    return bytes((0x30, 0x82)) + len(inner).to_bytes(2) + inner


@pytest.mark.parametrize(("subject", "name"), JAVA)
def test_a_name_is_written_as_java_writes_it(subject: str, name: str) -> None:
    assert subject_name(certificate(bytes.fromhex(subject))) == name


def test_the_name_of_a_whole_certificate() -> None:
    pem = trustme.CA().issue_cert("a.example", common_name="me").cert_chain_pems[0].bytes()
    found = x509.load_pem_x509_certificate(pem)
    der = found.public_bytes(serialization.Encoding.DER)
    assert subject_name(der) == found.subject.rfc4514_string().replace("#", r"\#")


@given(st.binary(max_size=80))
def test_anything_else_has_no_name(data: bytes) -> None:
    for shown in (data, certificate(data[:60])):
        with suppress(ValueError, IndexError):
            subject_name(shown)


@pytest.mark.parametrize(
    ("rules", "name", "made"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=Service.*$/$1/", "CN=Kafka,OU=Services", "Kafka"),
        ("RULE:^CN=(.*?),OU=Service.*$/$1/L,DEFAULT", "CN=Kafka,OU=Services", "kafka"),
        ("RULE:^cn=(.*?),dc=(.*?)$/$1@$2/U, DEFAULT", "cn=a,dc=b", "A@B"),
        ("RULE:^cn=(.*?)$/$1/, DEFAULT", "CN=a", "CN=a"),
        (r"RULE:^CN=(.*)\/(.*)$/$2$3/", "CN=a/b", "b$3"),
        ("RULE:^cn=(.*?)$/$1/", "CN=a", None),
    ],
)
def test_the_first_rule_that_fits_is_taken(rules: str, name: str, made: str | None) -> None:
    assert MappingRules(rules).apply(name) == made


@pytest.mark.parametrize("rules", ["x", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "DEFAULT DEFAULT"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules(rules)
