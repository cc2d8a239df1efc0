"""The options of a server of `cbx serve`: its address, access rules, and limits."""

import ipaddress
from collections.abc import Callable, Sequence

import msgspec

from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.target import Target

PORT = 8099


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a server. Times are in seconds.

    - `usual_project`: the project that commands use without `--project`.
    - `project`: the project that browsers are redirected to. Default: `usual_project`.
    - `hosts`: the allowed host names. `origins`: the origins of other sites that may call the API.
    - `asks_for_tokens`: each request needs a token of its project.
    - `behind_tls`: a proxy in front of this server terminates TLS.
    - `pause`: the interval between two polls for changes that sent no notification.
    - `log`: receives a line for each request.
    """

    target: Target
    settings: Settings
    usual_project: str
    project: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    asks_for_tokens: bool = False
    behind_tls: bool = False
    connections: int = 8
    statement_timeout: float = 30
    streams: int = 64
    pause: float = 1
    log: Callable[[str], None] | None = None

    @property
    def address(self) -> str:
        """The URL of the start page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
