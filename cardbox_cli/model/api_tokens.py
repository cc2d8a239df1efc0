"""Tokens that open one project to readers over HTTP: how they are written, and what is kept of them.

A token says which project it is of, so that no look-up crosses projects. Its secret is 256 random bits, so
that a plain SHA-256 of it can be kept: nobody can try them all.
"""

import base64
import binascii
import hashlib
import secrets
from datetime import datetime

import msgspec

_MARK = "cbx"
_SECRET_BYTES = 32


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token."""

    token_id: str
    project_id: str
    label: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def new_token(project_id: str) -> str:
    """A new token of a project: `cbx.PROJECT.SECRET`, both in base64 for addresses."""
    return f"{_MARK}.{_encoded(project_id.encode())}.{_encoded(secrets.token_bytes(_SECRET_BYTES))}"


def project_of(token: str) -> str | None:
    """The project that a token says it is of; None for what is no token."""
    mark, _, rest = token.partition(".")
    project, _, secret = rest.partition(".")
    if mark != _MARK or not secret or "." in secret:
        return None
    try:
        return _decoded(project).decode()
    except (binascii.Error, ValueError):
        return None


def hash_of(token: str) -> bytes:
    """What is kept of a token: its SHA-256, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
