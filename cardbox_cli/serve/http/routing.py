"""Routes that run in one thread for each request: it opens the snapshot, runs the handler and closes it.

FastAPI parses a request's address. The event loop reads the body. The thread parses it after it has checked
the token. The number of responses that are streamed at the same time is limited.
"""

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from anyio import to_thread
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from cardbox_cli.serve.addresses import decode_slashes
from cardbox_cli.serve.http.errors import RequestRejected
from cardbox_cli.serve.http.project_access import ProjectRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ReadingRoute(APIRoute):
    """A route whose function takes a `Read` or a `PageRead` as `read`.

    A function that takes a body as `body` also takes the request and nothing else. It must open a snapshot if
    it sends more than one statement.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _open_snapshot(endpoint), **options)

    def get_route_handler(self) -> Handler:
        """Return FastAPI's handler, or a much faster one for requests with a body."""
        endpoint = inspect.unwrap(self.endpoint)
        body = inspect.signature(endpoint).parameters.get("body")
        answer = super().get_route_handler() if body is None else _body_handler(endpoint, body.annotation)

        async def handle(request: Request) -> Response:
            request.scope["path_params"] = decode_slashes(request.path_params)
            return await answer(request)

        return handle


def _body_handler(endpoint: Callable[..., Response], kind: type[BaseModel]) -> Handler:
    def answer(request: Request, body: bytes) -> Response:
        with ProjectRequest(request, request.path_params["project"]).open_autocommit() as reading:
            return endpoint(request=request, read=reading, body=_parse_body(request, body, kind))

    async def handle(request: Request) -> Response:
        return await to_thread.run_sync(answer, request, await request.body())

    return handle


def _open_snapshot(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it gets an open snapshot instead of a `ProjectRequest`."""
    if "read" not in inspect.signature(endpoint).parameters or hasattr(endpoint, "__wrapped__"):
        return endpoint

    @functools.wraps(endpoint)
    def answer(read: ProjectRequest, **given: Any) -> Any:
        with read.open_snapshot() as reading:
            return endpoint(read=reading, **given)

    return answer


def _parse_body(request: Request, body: bytes, kind: type[BaseModel]) -> BaseModel:
    """Parse a body. Raises RequestRejected for invalid JSON, RequestValidationError for invalid values."""
    if not _is_json(request.headers.get("content-type", "")):
        raise RequestRejected(422, "body: Content-Type must be application/json")
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as exc:
        errors = [{**each, "loc": ("body", *each["loc"])} for each in exc.errors()]
        raise RequestValidationError(errors) from None
    except (RecursionError, ValueError) as exc:
        # Invalid UTF-8, invalid JSON, too deeply nested, or a number with too many digits.
        raise RequestRejected(422, f"body: JSON decode error: {exc}") from None


def _is_json(kind: str) -> bool:
    subtype = kind.partition(";")[0].strip().lower().removeprefix("application/")
    return subtype == "json" or subtype.endswith("+json")


class StreamLimit:
    """The limit of concurrent streams of one app. Belongs to its event loop."""

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self) -> None:
        """Count a new stream. Raises RequestRejected if the limit is reached."""
        if self._free < 1:
            raise RequestRejected(503, "too many streams are open")
        self._free -= 1

    def release(self) -> None:
        self._free += 1


class LimitedStream(StreamingResponse):
    """A streamed response, which counts towards the limit from its creation to its end."""

    def __init__(self, request: Request, chunks: AsyncIterator[str], **options: Any) -> None:
        """Raises RequestRejected if the limit is reached."""
        super().__init__(chunks, **options)
        self._streams: StreamLimit = request.app.state.streams
        self._streams.take()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release()
