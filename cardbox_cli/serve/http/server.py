"""The server around the app: it listens, and ends when it is told to."""

import errno
import logging
import socket

import uvicorn
from fastapi import FastAPI

from cardbox_cli.errors import UsageError
from cardbox_cli.serve.options import ServeOptions

MAX_CONNECTIONS = 512
"""Connections, and requests, at one time. uvicorn answers a request beyond them with 503, before the app."""
MAX_HEAD = 1 << 16
"""Bytes of a request besides its body: the address, headers, trailers."""
KEEP_ALIVE_SECONDS = 30
"""Seconds from the end of an answer to the next request on its connection."""

# What it says of an answer that was broken off: why that was, has been logged.
_BROKEN_OFF = "ASGI callable returned without completing response."
# Seconds that answers which are being sent have once the server shall end.
_GRACE = 3


def listen(options: ServeOptions) -> socket.socket:
    """A socket at the address that is asked for. Raises UsageError where none can be had."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(128)
    except OSError as exc:
        listening.close()
        is_elsewhere = exc.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        raise UsageError(
            f"cannot listen on {options.host}:{options.port}: {exc.strerror}",
            hint="--host takes an address of this machine, 0.0.0.0 all of them"
            if is_elsewhere
            else "--port takes another, 0 any that is free",
        ) from exc
    return listening


def serve(app: FastAPI, listening: socket.socket, options: ServeOptions) -> None:
    """Answer requests until SIGINT or SIGTERM. No address with its query is ever logged."""
    server_of(app, options).run(sockets=[listening])


def server_of(app: FastAPI, options: ServeOptions) -> uvicorn.Server:
    """A server that answers for an app, and ends quickly and quietly."""
    configured = _configured(app, options)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return _Server(configured, app)


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != _BROKEN_OFF


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams at once, and what else is being sent after its grace."""
        self._app.state.following.end()
        # What is cut off then is no error: whoever ended the server did it.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _configured(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Unlike httptools it bounds heads.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        # Its warnings are about what is asked, a line for each request: whoever asks would fill the log.
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=options.behind_tls,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )
