"""The check of brokers' TLS certificates, as this client receives them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator

from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.connecting import CONNECT_S
from kstore.cli.doctor.findings import Finding, Limits, Severity

__all__ = ["CERTIFICATES_ABOUT", "certificates"]

CERTIFICATES_ABOUT = "TLS certificates that expire soon, or that are refused"
DAY_S = 86_400


def certificates(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """The certificate of each broker; nothing if the client does not use TLS."""
    context = view.tls_context()
    for broker in view.cluster.brokers if context is not None else ():
        assert context is not None
        subject = f"broker {broker.node_id} {broker.host}:{broker.port}"
        try:
            ends_s = _ends_s(context, broker.host, broker.port)
        except ssl.SSLError as problem:
            yield Finding(
                Severity.ERROR, subject, str(problem.reason or problem),
                "This client refuses the broker's certificate, or the broker refuses this client.",
                f"openssl s_client -connect {broker.host}:{broker.port} -showcerts; compare with "
                "ssl.truststore.location",
            )  # fmt: skip
            continue
        except OSError:
            continue  # advertised-listeners reports it
        days = (ends_s - time.time()) / DAY_S
        if days < limits.certificate_days:
            yield Finding(
                Severity.WARNING, subject, f"its certificate expires in {days:.1f} days",
                "After that no client connects to it.",
                f"install a new certificate in ssl.keystore.location of broker {broker.node_id}",
            )  # fmt: skip


def _ends_s(context: ssl.SSLContext, host: str, port: int) -> float:
    """When the broker's certificate expires, in seconds since 1970."""
    with (
        socket.create_connection((host, port), CONNECT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        found = secured.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))
