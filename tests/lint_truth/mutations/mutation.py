"""What a mutation is: one thing about a request that its provider refuses, made of one that it took."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

Body = dict[str, Any]
Edit = Callable[[Body], bool]


class Mutation(NamedTuple):
    """`edit` breaks a request in place, and says whether it could; `source` says who refuses that."""

    name: str
    source: str
    edit: Edit

    def of(self, request: Body) -> Body | None:
        """The request, broken; None where it has nothing to break."""
        broken = copy.deepcopy(request)
        return broken if self.edit(broken) else None


def put(**keys: Any) -> Edit:
    """Sets keys of the request."""

    def edit(body: Body) -> bool:
        body.update(copy.deepcopy(keys))
        return True

    return edit


def drop(key: str, **keys: Any) -> Edit:
    """Takes a key out of the request, and sets others."""

    def edit(body: Body) -> bool:
        if key not in body:
            return False
        del body[key]
        body.update(copy.deepcopy(keys))
        return True

    return edit


def end(*messages: Body, at: str = "messages", **keys: Any) -> Edit:
    """Puts messages behind the others, and sets keys of the request."""

    def edit(body: Body) -> bool:
        if not isinstance(body.get(at), list):
            return False
        body[at] += copy.deepcopy(messages)
        body.update(copy.deepcopy(keys))
        return True

    return edit


def begin(*messages: Body, at: str = "messages", **keys: Any) -> Edit:
    """Puts messages before the others, and sets keys of the request."""

    def edit(body: Body) -> bool:
        if not isinstance(body.get(at), list):
            return False
        body[at] = [*copy.deepcopy(messages), *body[at]]
        body.update(copy.deepcopy(keys))
        return True

    return edit


def within(change: Callable[[Any], Any], *, at: str = "messages", where: Callable[[Any], bool]) -> Edit:
    """Changes the first item of a list of which `where` holds."""

    def edit(body: Body) -> bool:
        items = body.get(at)
        found = next((item for item in items if where(item)), None) if isinstance(items, list) else None
        if found is None:
            return False
        change(found)
        return True

    return edit


def by_role(role: str) -> Callable[[Any], bool]:
    """Whether a message is of this role."""
    return lambda message: isinstance(message, dict) and message.get("role") == role
