"""Addresses of pages, ids in texts that have a page, and parameters of addresses. Pure.

Ids of other programs may contain any character, so they are always quoted in addresses.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

from cardbox_cli.errors import InvalidInput, UsageError
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
_TURNS = frozenset({"cbx.turns"})
_AGENTS = frozenset({"state.agent_state_head", "resource.project_agents", "state.agent_state_pointers"})
_CARD_EVENTS = frozenset({"card", "called", "answered", "deliverable", "received", "applied"})


class Links:
    """The addresses of one project's pages."""

    def __init__(self, project_id: str) -> None:
        self.project_id = project_id
        self._root = f"{PREFIX}/{quote(project_id, safe='')}"

    def start(self, **query: object) -> str:
        return self._address("", query)

    def projects(self) -> str:
        return PREFIX

    def agents(self, **query: object) -> str:
        return self._address("/agents", query)

    def agent(self, agent_id: str, **query: object) -> str:
        return self._address(f"/agents/{_name(agent_id)}", query)

    def turn(self, turn_id: str) -> str:
        return self._address(f"/turns/{_name(turn_id)}", {})

    def trace(self, turn_id: str) -> str:
        return self._address("/trace", {"turn": turn_id})

    def boxes(self, **query: object) -> str:
        return self._address("/boxes", query)

    def box(self, box_id: str, **query: object) -> str:
        return self._address(f"/boxes/{_name(box_id)}", query)

    def card(self, card_id: str, **query: object) -> str:
        return self._address(f"/cards/{_name(card_id)}", query)

    def request(self, **query: object) -> str:
        return self._address("/request", query)

    def diff(self, **query: object) -> str:
        return self._address("/diff", query)

    def cost(self, **query: object) -> str:
        return self._address("/cost", query)

    def batches(self, **query: object) -> str:
        return self._address("/batches", query)

    def batch(self, batch_id: str) -> str:
        return self._address(f"/batches/{_name(batch_id)}", {})

    def chats(self) -> str:
        return self._address("/chats", {})

    def chat(self, chat_key: str, **query: object) -> str:
        return self._address("/chat", {"key": chat_key, **query})

    def search(self, **query: object) -> str:
        return self._address("/search", query)

    def find(self, found_id: str) -> str:
        return self._address("/find", {"id": found_id})

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
        if table in _TURNS or row.startswith("turn_"):
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
        for found in _ID.finditer(text):
            if found.start() > position:
                yield text[position : found.start()], None
            command = found["command"]
            yield (found[0], self._address_of(found)) if command is None else (command, COMMAND)
            position = found.end()
        if position < len(text):
            yield text[position:], None

    def _address_of(self, found: re.Match[str]) -> str:
        if found["turn"]:
            return self.turn(found[0])
        return self.batch(found[0]) if found["batch"] else self.find(found[0])

    def _address(self, path: str, query: dict[str, object]) -> str:
        # A parameter whose name is a keyword of Python has a trailing `_`.
        given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
        encoded = f"?{urlencode(given, errors='replace')}" if given else ""
        return f"{self._root}{path}{encoded}"


def _name(given: str) -> str:
    """Quote an id as the last part of a path, except `/`: routes accept the rest of the path as an id."""
    quoted = quote(given, safe="/", errors="replace")
    # Browsers resolve these two segments before they send a request.
    return "/".join({".": "%2E", "..": "%2E%2E"}.get(part, part) for part in quoted.split("/"))


Word = TypeVar("Word", bound=str)


def require_parameter(given: str | None, what: str) -> str:
    """Return a required parameter. Raises UsageError if it is missing."""
    if not given:
        raise UsageError(required_message(f"a {what}"), hint="go back, and follow a link")
    return given


def check_choice(given: str | None, words: Sequence[Word], what: str) -> Word | None:
    """Return the value if it is one of `words`, None if it is None. Raises InvalidInput for others."""
    if given is None:
        return None
    for word in words:
        if word == given:
            return word
    raise InvalidInput(unknown_message(what, given), hint=f"use one of {', '.join(words)}")


class About:
    """A turn, agent, chat or box that has requests. `name` is its id, `kind` its type."""

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
        given = {"turn": turn, "agent": agent, "chat": chat, "box": box}
        named = {kind: name for kind, name in given.items() if name is not None}
        if len(named) != 1:
            raise UsageError(
                "the address must name exactly one turn, agent, chat or box",
                hint="go back, and follow a link",
            )
        [(self.kind, self.name)] = named.items()
        self._named = named

    @property
    def view(self) -> str:
        """Its entry in the navigation."""
        return {"turn": "Turns", "agent": "Agents", "chat": "Chats", "box": "Boxes"}[self.kind]

    @property
    def address(self) -> str:
        """The address of its page."""
        links = self._links
        match self.kind:
            case "turn":
                return links.turn(self.name)
            case "agent":
                return links.agent(self.name)
            case "chat":
                return links.chat(self.name)
        return links.box(self.name)

    @property
    def title(self) -> str:
        """Its name for people."""
        shown = self.name if self.kind in ("agent", "chat") else short_id(self.name)
        return f"{self.kind.capitalize()} {shown}"

    @property
    def parameter(self) -> tuple[str, str]:
        """Its query parameter: name and value."""
        return self.kind, self.name

    def request(self, at: str | None, **query: object) -> str:
        """Return the address of one of its requests."""
        return self._links.request(**self._named, at=at, **query)

    def diff(self, a: str, b: str) -> str:
        """Return the address of the difference of two of its steps."""
        return self._links.diff(**self._named, a=a, b=b)
