"""What a server of `cbx serve` is told: where it listens, who may ask, how long a request may take."""

import ipaddress
from collections.abc import Callable, Sequence

import msgspec

from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.target import Target

PORT = 8099


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `usual_project` is the one that commands mean without being told, `project` the
    one that browsers are led to, which is that one if nobody says another.

    `hosts` are the names that requests may be sent to, `origins` those of pages of others that may ask.
    `asks_for_tokens`: whoever asks must show a token of the project. `behind_tls`: a proxy before this server
    speaks TLS with browsers. `pause`: between two looks for what has changed and was not notified of.
    `log` is told a line for each request.
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
        """The address of its first page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
