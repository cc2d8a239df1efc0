"""Addresses of pages, ids in texts that have a page, and parameters of addresses. Pure.

Ids of other programs may contain any character, so they are always quoted in addresses.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partialmethod
from typing import TypeVar
from urllib.parse import quote, urlencode

from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.inspect.requests import one_of
from cardbox_cli.inspect.turns import Event
from cardbox_cli.model.ids import short_id
from cardbox_cli.text.error_messages import required_message, unknown_message

PREFIX = "/inspect"

# Text that is certainly an id (ids made by cbx are long, with a fixed prefix), or a quoted command.
_ID = re.compile(
    r"\b(?:(?P<turn>turn_[0-9a-f]{32})|(?P<batch>batch_[0-9a-f]{32})"
    r"|(?P<any>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}))\b"
    r"|`(?P<command>[^`\n]+)`"
)
COMMAND = "`"
"""The marker that replaces the address of a part of a text that is a command."""
_AGENTS = frozenset({"state.agent_state_head", "resource.project_agents", "state.agent_state_pointers"})
_CARD_EVENTS = frozenset({"card", "called", "answered", "deliverable", "received", "applied"})


class Links:
    """The addresses of one project's pages."""

    def __init__(self, project_id: str) -> None:
        self.project_id = project_id
        self._root = f"{PREFIX}/{quote(project_id, safe='')}"

    def _address(self, path: str, /, **query: object) -> str:
        # A parameter whose name is a keyword of Python has a trailing `_`.
        given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
        encoded = f"?{urlencode(given, errors='replace')}" if given else ""
        return f"{self._root}{path}{encoded}"

    start = partialmethod(_address, "")
    agents = partialmethod(_address, "/agents")
    boxes = partialmethod(_address, "/boxes")
    request = partialmethod(_address, "/request")
    diff = partialmethod(_address, "/diff")
    cost = partialmethod(_address, "/cost")
    batches = partialmethod(_address, "/batches")
    chats = partialmethod(_address, "/chats")
    search = partialmethod(_address, "/search")

    def _item(self, path: str, item_id: str, /, **query: object) -> str:
        return self._address(f"{path}/{_name(item_id)}", **query)

    agent = partialmethod(_item, "/agents")
    turn = partialmethod(_item, "/turns")
    box = partialmethod(_item, "/boxes")
    card = partialmethod(_item, "/cards")
    batch = partialmethod(_item, "/batches")

    def trace(self, turn_id: str) -> str:
        return self._address("/trace", turn=turn_id)

    def chat(self, chat_key: str, **query: object) -> str:
        return self._address("/chat", key=chat_key, **query)

    def find(self, any_id: str) -> str:
        return self._address("/find", id=any_id)

    def projects(self) -> str:
        return PREFIX

    def events(self) -> str:
        return f"/projects/{quote(self.project_id, safe='')}/events"

    def row_page(self, table: str, row: str) -> str | None:
        """Return the page of a row of evidence, if there is one."""
        if table == "public.cards":
            return self.card(row)
        if table == "public.card_boxes":
            return self.box(row)
        if table in _AGENTS:
            return self.agent(row)
        if table == "cbx.turns" or row.startswith("turn_"):
            return self.turn(row)
        if table == "cbx.batches":
            return self.batch(row)
        return None

    def event_page(self, event: Event) -> str | None:
        """Return the page of the object that an event refers to, if there is one."""
        if event.ref is None:
            return None
        if event.event in _CARD_EVENTS:
            return self.card(event.ref)
        return self.turn(event.ref) if event.event in ("asked", "answer") else None

    def within(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Split a text into parts: ids with their address, commands with `COMMAND`, others with None."""
        position = 0
        for match in _ID.finditer(text):
            if match.start() > position:
                yield text[position : match.start()], None
            command = match["command"]
            yield (match[0], self._address_of(match)) if command is None else (command, COMMAND)
            position = match.end()
        if position < len(text):
            yield text[position:], None

    def _address_of(self, match: re.Match[str]) -> str:
        if match["turn"]:
            return self.turn(match[0])
        return self.batch(match[0]) if match["batch"] else self.find(match[0])


def _name(given: str) -> str:
    """Quote an id as the last part of a path, except `/`: routes accept the rest of the path as an id."""
    quoted = quote(given, safe="/", errors="replace")
    # Browsers resolve these two segments before they send a request.
    return "/".join({".": "%2E", "..": "%2E%2E"}.get(part, part) for part in quoted.split("/"))


Word = TypeVar("Word", bound=str)


def require_parameter(given: str | None, what: str) -> str:
    """Return a required parameter. Raises UsageError if it is None or empty."""
    if not given:
        raise UsageError(required_message(f"a {what}"), hint="go back, and follow a link")
    return given


def check_choice(given: str | None, choices: Sequence[Word], what: str) -> Word | None:
    """Return the value if it is None or one of `choices`. Raises InvalidInput for any other value."""
    if given is None:
        return None
    for choice in choices:
        if choice == given:
            return choice
    raise InvalidInput(unknown_message(what, given), hint=f"use one of {', '.join(choices)}")


class RequestOwner:
    """A turn, agent, chat or box that has requests: its type `kind`, and its id `name`."""

    def __init__(
        self,
        links: Links,
        *,
        turn: str | None = None,
        agent: str | None = None,
        chat: str | None = None,
        box: str | None = None,
    ) -> None:
        self._links = links
        self.parameter = one_of("go back, and follow a link", turn=turn, agent=agent, chat=chat, box=box)
        self.kind, self.name = self.parameter

    @property
    def view(self) -> str:
        return {"turn": "Turns", "agent": "Agents", "chat": "Chats", "box": "Boxes"}[self.kind]

    @property
    def address(self) -> str:
        address: str = getattr(self._links, self.kind)(self.name)
        return address

    @property
    def title(self) -> str:
        shown = self.name if self.kind in ("agent", "chat") else short_id(self.name)
        return f"{self.kind.capitalize()} {shown}"

    def request(self, at: str | None, **query: object) -> str:
        return self._links.request(**{self.kind: self.name}, at=at, **query)

    def diff(self, a: str, b: str) -> str:
        return self._links.diff(**{self.kind: self.name}, a=a, b=b)
