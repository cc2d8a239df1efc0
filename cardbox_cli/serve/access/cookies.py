"""What a browser keeps of a token: its id, signed, for a day at most, and for one project. Never the token.

The key lives as long as the server: who starts it anew logs everybody out.
"""

import base64
import hashlib
import hmac
import secrets
import time

from fastapi import Request, Response

_LASTS = 24 * 3600


class Cookies:
    """Makes and reads the cookies of a server. `is_secure`: only over TLS do browsers send them back."""

    def __init__(self, *, is_secure: bool) -> None:
        self._key = secrets.token_bytes(32)
        self._is_secure = is_secure

    def made(self, project_id: str, token_id: str) -> str:
        """The value of a cookie that stands for a token."""
        said = f"{token_id}.{int(time.time()) + _LASTS}"
        return f"{said}.{self._signature(project_id, said)}"

    def token_of(self, request: Request, project_id: str) -> str | None:
        """The id of the token that a request's cookie stands for; None without one, or for one of others."""
        said, _, signature = request.cookies.get(name_of(project_id), "").rpartition(".")
        expected = self._signature(project_id, said)
        if not said or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        token_id, _, until = said.rpartition(".")
        return token_id if int(until) > time.time() else None

    def set(self, response: Response, project_id: str, value: str) -> None:
        """Have a browser keep a cookie."""
        response.set_cookie(
            name_of(project_id),
            value,
            max_age=_LASTS,
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )

    def forget(self, response: Response, project_id: str) -> None:
        """Have a browser forget it."""
        response.delete_cookie(name_of(project_id), httponly=True, samesite="strict", secure=self._is_secure)

    def _signature(self, project_id: str, said: str) -> str:
        text = f"{len(project_id)}:{project_id}{said}".encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).rstrip(b"=").decode()


def name_of(project_id: str) -> str:
    """What the cookie of a project is called: projects may have any name, cookies not."""
    return f"cbx_{hashlib.sha256(project_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
