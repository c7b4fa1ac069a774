"""The stored form of a delegation token: encrypted with AES-256-GCM and a key that is derived from
`delegation.token.secret.key`. Without that key, read access to the store reveals no owners, and
write access does not allow creating or changing tokens.

The expiry time is authenticated but not encrypted, so an expired token is deleted even if its key
is lost. Signed nodes of earlier versions of kstore are read, too; `resealed` converts them to this
form.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstore.broker.state.security.delegation_tokens import DelegationToken, Principal, own_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["NONCE_BYTES", "may_be_over", "parse", "resealed", "sealed"]

SIGNED, SEALED = 3, 4
"""The versions of the form: plain text with a signature, as Kafka wrote it to ZooKeeper, and
encrypted.
"""
NONCE_BYTES = 12
WRONG_KEY = (
    "it can't be opened with this broker's delegation.token.secret.key: set the key that it was "
    "created with, or expire it and create another"
)


def sealed(token: DelegationToken, key: bytes, nonce: bytes) -> bytes:
    """The stored form of a token. ``nonce`` is random and used only once."""
    head = _head(token.token_id, min(token.expires_ms, token.max_ms))
    text = _json(
        {
            "owner": str(token.owner),
            "tokenRequester": str(token.requester),
            "renewers": [str(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
        }
    )
    box = nonce + _cipher(key).encrypt(nonce, text, _json(head))
    return _json(head | {"sealed": base64.b64encode(box).decode()})


def parse(token_id: str, data: bytes, key: bytes) -> DelegationToken:
    """Parse a stored token. Raises ValueError if it is invalid, or has another key."""
    try:
        fields = json.loads(data)
        if fields.get("version") == SEALED:
            fields = _opened(token_id, fields, key)
        else:
            _check_signature(token_id, fields, key)
        return DelegationToken(
            token_id,
            Principal.of(fields["owner"]),
            Principal.of(fields["tokenRequester"]),
            tuple(map(Principal.of, fields["renewers"])),
            int(fields["issueTimestamp"]),
            int(fields["expiryTimestamp"]),
            int(fields["maxTimestamp"]),
        )
    except (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise ValueError(f"it does not have the format of a token ({problem!r})") from None


def resealed(token_id: str, data: bytes, key: bytes, nonce: bytes) -> bytes | None:
    """Convert a signed node with this key to the encrypted form. None for all other nodes."""
    try:
        is_signed = json.loads(data).get("version") == SIGNED
        return sealed(parse(token_id, data, key), key, nonce) if is_signed else None
    except (ValueError, AttributeError, RecursionError):
        return None


def may_be_over(data: bytes, now_ms: int) -> bool:
    """Whether the stored expiry time has passed. Does not check the signature."""
    try:
        fields = json.loads(data)
        if fields.get("version") == SEALED:
            return int(fields["endTimestamp"]) < now_ms
        return min(int(fields["expiryTimestamp"]), int(fields["maxTimestamp"])) < now_ms
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        return False


def _head(token_id: str, ends_ms: int) -> dict[str, Any]:
    """The unencrypted, authenticated part."""
    return {"version": SEALED, "tokenId": token_id, "endTimestamp": ends_ms}


def _opened(token_id: str, fields: Mapping[str, Any], key: bytes) -> Any:
    from cryptography.exceptions import InvalidTag

    box = base64.b64decode(fields["sealed"], validate=True)
    head = _json(_head(token_id, int(fields["endTimestamp"])))
    try:
        text = _cipher(key).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], head)
    except (InvalidTag, ValueError):
        raise ValueError(WRONG_KEY) from None
    return json.loads(text)


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(own_key(key, b"seal"))


def _check_signature(token_id: str, fields: dict[str, Any], key: bytes) -> None:
    signature = str(fields.pop("signature", ""))
    expected = hmac.digest(own_key(key, b"node"), _json(fields), "sha256").hex()
    is_signed = hmac.compare_digest(signature.encode(), expected.encode())
    if not is_signed or fields["tokenId"] != token_id:
        raise ValueError(WRONG_KEY)


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
