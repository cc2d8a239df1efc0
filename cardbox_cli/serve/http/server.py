"""The uvicorn server around the app: it listens, and stops on SIGINT or SIGTERM."""

import errno
import logging
import socket

import uvicorn
from fastapi import FastAPI

from cardbox_cli.errors import UsageError
from cardbox_cli.serve.serve_options import ServeOptions

MAX_CONNECTIONS = 512
"""The maximum number of concurrent connections and requests. uvicorn answers 503 to requests above it."""
MAX_HEAD = 1 << 16
"""The maximum number of bytes of a request's address, headers and trailers."""
KEEP_ALIVE_SECONDS = 30
"""The maximum number of seconds from the end of a response to the next request on its connection."""

# uvicorn's message for a response that broke off. Its cause has been logged already.
_BROKEN_OFF = "ASGI callable returned without completing response."
# The number of seconds in which open responses may finish when the server stops.
_SHUTDOWN_SECONDS = 3


def open_socket(options: ServeOptions) -> socket.socket:
    """Return a socket that listens on the address of the options. Raises UsageError if that fails."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(128)
    except OSError as exc:
        listening.close()
        unusable = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        is_elsewhere = isinstance(exc, socket.gaierror) or exc.errno in unusable
        raise UsageError(
            f"cannot listen on {options.host}:{options.port}: {exc.strerror}",
            hint="pass an address of this machine with --host, for example 127.0.0.1"
            if is_elsewhere
            else "pass another port with --port, or 0 for any free port",
        ) from exc
    return listening


def serve(app: FastAPI, listening: socket.socket, options: ServeOptions) -> None:
    """Answer requests until SIGINT or SIGTERM. Queries of addresses are never logged."""
    make_http_server(app, options).run(sockets=[listening])


def make_http_server(app: FastAPI, options: ServeOptions) -> uvicorn.Server:
    """Return a uvicorn server for an app. It stops quickly and logs no errors while stopping."""
    logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)
    return _Server(_make_config(app, options), app)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return record.msg != _BROKEN_OFF


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams at once, and other responses after `_SHUTDOWN_SECONDS`."""
        self._app.state.feed.end()
        # Responses that are cut off now are not errors: the operator stopped the server.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _make_config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Unlike httptools, h11 limits the size of headers.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        # uvicorn logs a warning for each malformed request, so clients could fill the log.
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=options.behind_tls,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )
