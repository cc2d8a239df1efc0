"""Lists page by page: an array as `-o json` prints it, and in the header `Link` the next page."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec
from fastapi import Query, Request
from fastapi.responses import Response

from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.batches import BATCH_STATUSES
from cardbox_cli.model.execution.turns import INBOX_STATUSES, TURN_STATUSES
from cardbox_cli.serve.api.answers import check_size, encoded
from cardbox_cli.serve.http.addresses import path_of
from cardbox_cli.serve.listing import following

# The states that can be asked for, as commands take them. Others, which foreign rows may have, cannot.
if TYPE_CHECKING:
    TurnState: TypeAlias = str
    InboxState: TypeAlias = str
    BatchState: TypeAlias = str
else:
    TurnState = Literal[TURN_STATUSES]
    InboxState = Literal[INBOX_STATUSES]
    BatchState = Literal[BATCH_STATUSES]

Most = Annotated[int, Query(alias="limit", ge=1, le=200, description="At most so many.")]

_LESS = "ask for less by a lower `limit`"


def paged(
    request: Request,
    items: Iterable[Any],
    most: int,
    *,
    key: str,
    time: str | None = "created_at",
) -> Response:
    """A page of these, of which one more is read, by their `time`, or without one by their `key`.

    Raises InvalidInput where they are too long for one answer.
    """
    found: list[Any] = []
    texts: list[msgspec.Raw] = []
    size = 0
    for each in islice(items, most + 1):
        found.append(each)
        if len(found) <= most:
            text = exact_json.encode(each)
            texts.append(msgspec.Raw(text))
            size += len(text)
            check_size(size, _LESS)
    response = encoded(request, texts, narrower=_LESS)
    behind = following(found, key, time, size=most)
    if behind is not None:
        known = {name: value for name, value in request.query_params.items() if name != "behind"}
        address = f"{path_of(request.scope)}?{urlencode({**known, 'behind': behind})}"
        response.headers["Link"] = f'<{address}>; rel="next"'
    return response
