"""By which names the server may be asked: a page of others cannot have its own name lead here, and read."""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cardbox_cli.errors import UsageError
from cardbox_cli.serve.http.errors import answer

# A name or an address, that of IPv6 in brackets, as a request names it; a star for all below one, or for any.
_NAME = re.compile(r"(?:\*\.)?[^\s:@/\[\]*?#]+|\[[0-9A-Fa-f:.]+\]|\*")
# As browsers send it: in small letters, without a path, and without the port that its scheme has anyway.
_ORIGIN = re.compile(
    r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://(?:[^\s:@/\[\]*?#A-Z]+|\[[0-9a-f:.]+\])(?::[0-9]+)?"
)
# A name or an address, that of IPv6 in brackets; and a port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]*)?")


def check_names(hosts: Sequence[str], origins: Sequence[str]) -> None:
    """Raise UsageError for what no request can name: a host, or the origin of a page."""
    for host in hosts:
        if not (host.isascii() and _NAME.fullmatch(host)):
            raise UsageError(
                f"--allowed-host: {host!r} is no name of a host",
                hint="a name or an address, without scheme, port and path: cbx.example.org, [::1]",
            )
    for origin in origins:
        if origin not in ("*", "null") and not (origin.isascii() and _ORIGIN.fullmatch(origin)):
            raise UsageError(
                f"--cors-origin: {origin!r} is no origin of a page",
                hint="a scheme and a host as browsers send them, without a path: https://app.example.org",
            )


class Hosts:
    """Refuses requests to other names than these. `*.example.org` stands for all below it, `*` for any."""

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}
        self._domains = tuple(name[1:] for name in self._names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http" or self._is_known(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = answer(
            400, "bad_request", "the server is not asked by this name: --allowed-host adds names"
        )
        await refusal(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found[1].lower() if found else ""
        return "*" in self._names or name in self._names or name.endswith(self._domains)
