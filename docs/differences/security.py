"""Differences in authentication and authorization."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "Kerberos (GSSAPI)",
        "Supported.",
        "Not supported; use PLAIN, SCRAM or OAUTHBEARER. A setting that asks for a security "
        "feature that kstore does not have is refused, not ignored.",
        "Not built yet.",
    ),
    Difference(
        "A login with a delegation token by a client that does not know `tokenauth` (librdkafka)",
        "Refused.",
        "If there is no user with that name, the broker treats the name as a token id, and the "
        "password as its HMAC.",
        "Every client with SCRAM can use tokens.",
    ),
    Difference(
        "A login with a delegation token that has expired but is not removed yet",
        "Succeeds, with an expired session.",
        "Refused.",
        "The client learns that its credentials are not valid.",
    ),
    Difference(
        "Connections with a delegation token that is removed",
        "Stay open until the token would have expired.",
        "Closed, unless `kstore.end.sessions.of.changed.users` is false.",
        "A leaked secret can be revoked.",
    ),
    Difference(
        "OAUTHBEARER: tokens without a signature, symmetric keys in a JWK set",
        "The default callback handler, which is for development, accepts unsigned tokens.",
        "Both are refused.",
        "Anyone can create an unsigned token. A JWK set is public, so it must not contain secrets.",
    ),
    Difference(
        "JAAS: a JAAS file, `sasl.jaas.config` without a listener and a mechanism",
        "Read.",
        "Not read: use `listener.name.NAME.MECHANISM.sasl.jaas.config`.",
        "One way to configure it.",
    ),
    Difference(
        "Connections to other brokers when their session ends",
        "Authenticated again.",
        "Closed and opened again.",
        "One way to authenticate.",
    ),
    Difference(
        "Requests in the wrong order during authentication",
        "After SaslHandshake, requests other than SaslHandshake and ApiVersions are decoded and "
        "answered with `ILLEGAL_SASL_STATE`.",
        "Only SaslHandshake and ApiVersions are answered with `ILLEGAL_SASL_STATE`. Any other "
        "request closes the connection, without being decoded.",
        "Bytes from unauthenticated clients are not decoded.",
    ),
    Difference(
        "Frames that are too large before authentication",
        "The connection is closed after the delay of failed authentication.",
        "The connection is closed at once.",
        "The client has not guessed a password, so no delay is needed.",
    ),
    Difference(
        "A SCRAM proof of a wrong length; a renewal with a mechanism that is not enabled",
        "The connection is closed.",
        "The response has an error.",
        "The client learns what is wrong.",
    ),
    Difference(
        "JKS key stores",
        "Read.",
        "PEM and PKCS12 only.",
        "JKS is a format of the Java platform.",
    ),
    Difference(
        "`ssl.cipher.suites` with TLS 1.3",
        "Chooses among the suites of TLS 1.3.",
        "TLS 1.3 is offered with all of its suites or not at all.",
        "Python's TLS library cannot select them.",
    ),
    Difference(
        "ACLs with a host name",
        "Stored, but they never match.",
        "CreateAcls answers `INVALID_REQUEST`.",
        "A broker knows only a client's address.",
    ),
    Difference(
        "ACLs with a network (`10.0.0.0/8`, `fd00::/8`)",
        "Stored and compared as text, so they never match.",
        "Apply to the addresses of the network.",
        "This is KIP-1276, which a later Kafka release has.",
    ),
    Difference(
        "`kafka-acls --operation` for REPLICATOR_WRITE (KIP-391)",
        "No such operation on the cluster.",
        "The tool lists and removes such a rule (as CREATE_TOKENS, its number 13) but cannot add "
        "it: use `kstore acl add --operation replicator-write --cluster`, or an admin client. ALL "
        "on the cluster includes it.",
        "The tool is Kafka's.",
    ),
    Difference(
        "`kafka.authorizer.logger`",
        "Logs denials and, at DEBUG, allowed requests.",
        "`kstore.authorizer` logs denials at INFO, at a limited rate and in other words. Allowed "
        "requests are not logged. A repeated Metadata request that is answered from memory is "
        "logged once until topics or rules change.",
        "A client cannot fill the disk with denials.",
    ),
    Difference(
        "`/kafka-acl-changes` in ZooKeeper",
        "Kafka's ZooKeeper releases announce changes there.",
        "Not used. A resource name with `/` or `%` is percent-encoded in its znode.",
        "Brokers watch the rules themselves.",
    ),
    Difference(
        "`max.connections.per.ip.overrides`",
        "Addresses and host names.",
        "Addresses.",
        "A broker knows only a client's address.",
    ),
)
