"""How routes are asked: by one thread for each request, which opens the snapshot, answers and closes it.

FastAPI reads a request's address; a body is read here, after the token, by the same thread. Answers that are
sent in chunks, for as long as the client reads them, are N at a time.
"""

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from anyio import to_thread
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from cardbox_cli.serve.addresses import named
from cardbox_cli.serve.http.errors import Refused
from cardbox_cli.serve.http.reading import Asker

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ReadingRoute(APIRoute):
    """A route whose function takes a `Read` as `read` or a `Looking` as `look`.

    Where it takes a body as `asked`, it takes nothing else but the request, and opens a snapshot by itself if
    it sends more than one statement.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **told: Any) -> None:
        super().__init__(path, _in_one_look(endpoint), **told)

    def get_route_handler(self) -> Handler:
        """FastAPI's; a body is read without it, whose way takes longer than a hundred cards."""
        endpoint = inspect.unwrap(self.endpoint)
        asked = inspect.signature(endpoint).parameters.get("asked")
        answer = super().get_route_handler() if asked is None else _with_body(endpoint, asked.annotation)

        async def handle(request: Request) -> Response:
            request.scope["path_params"] = named(request.path_params)
            return await answer(request)

        return handle


def _with_body(endpoint: Callable[..., Response], kind: type[BaseModel]) -> Handler:
    def answer(request: Request, body: bytes) -> Response:
        with Asker(request, request.path_params["project"]).glance() as reading:
            return endpoint(request=request, read=reading, asked=_read(request, body, kind))

    async def handle(request: Request) -> Response:
        return await to_thread.run_sync(answer, request, await request.body())

    return handle


def _in_one_look(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a snapshot for each asker that it is called with."""
    if not {"read", "look"} & set(inspect.signature(endpoint).parameters) or hasattr(endpoint, "__wrapped__"):
        return endpoint

    @functools.wraps(endpoint)
    def answer(**given: Any) -> Any:
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(value.look()) if isinstance(value, Asker) else value
                for name, value in given.items()
            }
            return endpoint(**opened)

    return answer


def _read(request: Request, body: bytes, kind: type[BaseModel]) -> BaseModel:
    """A request's body. Raises Refused for what is no JSON, RequestValidationError for what it may not be."""
    if not _is_json(request.headers.get("content-type", "")):
        raise Refused(422, "body: Content-Type must be application/json")
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as exc:
        errors = [{**each, "loc": ("body", *each["loc"])} for each in exc.errors()]
        raise RequestValidationError(errors) from None
    except (RecursionError, ValueError) as exc:
        # No UTF-8, no JSON, too deep, or a number of more digits than are read.
        raise Refused(422, f"body: JSON decode error: {exc}") from None


def _is_json(kind: str) -> bool:
    subtype = kind.partition(";")[0].strip().lower().removeprefix("application/")
    return subtype == "json" or subtype.endswith("+json")


class Streams:
    """The places for streams of one app. Belongs to its event loop."""

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self) -> None:
        """Take a place. Raises Refused if none is free."""
        if self._free < 1:
            raise Refused(503, "too many streams are being sent already", headers={"Retry-After": "30"})
        self._free -= 1

    def release(self) -> None:
        """Give a place back."""
        self._free += 1


class StreamAnswer(StreamingResponse):
    """An answer in chunks, which has its place from before its first byte to its end."""

    def __init__(self, request: Request, chunks: AsyncIterator[str], **options: Any) -> None:
        """Raises Refused if no place is free."""
        super().__init__(chunks, **options)
        self._streams: Streams = request.app.state.streams
        self._streams.take()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release()
