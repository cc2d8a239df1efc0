"""The addresses of pages, what in a text names something that has one, and what an address asks for. Pure.

Ids are other programs' too, and hold anything: they are quoted wherever they stand in an address.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.inspect.turns import Event
from cardbox_cli.model.ids import short_id

PREFIX = "/inspect"

# What in a sentence is an id for sure: those that cbx makes are long and begin alike.
_ID = re.compile(
    r"\b(?:(?P<turn>turn_[0-9a-f]{32})|(?P<batch>batch_[0-9a-f]{32})"
    r"|(?P<any>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}))\b"
    r"|`(?P<command>[^`\n]+)`"
)
COMMAND = "`"
"""What stands in the place of an address for a command that a text quotes."""
_TURNS = frozenset({"cbx.turns"})
_AGENTS = frozenset({"state.agent_state_head", "resource.project_agents", "state.agent_state_pointers"})
_CARD_EVENTS = frozenset({"card", "called", "answered", "deliverable", "received", "applied"})


class Links:
    """The addresses of one project's pages."""

    def __init__(self, project_id: str) -> None:
        self.project_id = project_id
        self._root = f"{PREFIX}/{quote(project_id, safe='')}"

    def start(self, **query: object) -> str:
        return self._of("", query)

    def projects(self) -> str:
        return PREFIX

    def agents(self, **query: object) -> str:
        return self._of("/agents", query)

    def agent(self, agent_id: str, **query: object) -> str:
        return self._of(f"/agents/{_name(agent_id)}", query)

    def turn(self, turn_id: str) -> str:
        return self._of(f"/turns/{_name(turn_id)}", {})

    def trace(self, turn_id: str) -> str:
        return self._of("/trace", {"turn": turn_id})

    def boxes(self, **query: object) -> str:
        return self._of("/boxes", query)

    def box(self, box_id: str, **query: object) -> str:
        return self._of(f"/boxes/{_name(box_id)}", query)

    def card(self, card_id: str, **query: object) -> str:
        return self._of(f"/cards/{_name(card_id)}", query)

    def request(self, **query: object) -> str:
        return self._of("/request", query)

    def diff(self, **query: object) -> str:
        return self._of("/diff", query)

    def cost(self, **query: object) -> str:
        return self._of("/cost", query)

    def batches(self, **query: object) -> str:
        return self._of("/batches", query)

    def batch(self, batch_id: str) -> str:
        return self._of(f"/batches/{_name(batch_id)}", {})

    def chats(self) -> str:
        return self._of("/chats", {})

    def chat(self, chat_key: str, **query: object) -> str:
        return self._of("/chat", {"key": chat_key, **query})

    def search(self, **query: object) -> str:
        return self._of("/search", query)

    def find(self, found_id: str) -> str:
        return self._of("/find", {"id": found_id})

    def events(self) -> str:
        return f"/projects/{quote(self.project_id, safe='')}/events"

    def of_row(self, table: str, row: str) -> str | None:
        """The page of a row that proves something, if there is one."""
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

    def of_event(self, event: Event) -> str | None:
        """The page of what shows an event, if there is one."""
        if event.ref is None:
            return None
        if event.event in _CARD_EVENTS:
            return self.card(event.ref)
        return self.turn(event.ref) if event.event in ("asked", "answer") else None

    def within(self, text: str) -> Iterator[tuple[str, str | None]]:
        """The pieces of a text in order: an id that is known by its looks with its address, a command with
        `COMMAND`, all else with None."""
        place = 0
        for found in _ID.finditer(text):
            if found.start() > place:
                yield text[place : found.start()], None
            command = found["command"]
            yield (found[0], self._of_found(found)) if command is None else (command, COMMAND)
            place = found.end()
        if place < len(text):
            yield text[place:], None

    def _of_found(self, found: re.Match[str]) -> str:
        if found["turn"]:
            return self.turn(found[0])
        return self.batch(found[0]) if found["batch"] else self.find(found[0])

    def _of(self, path: str, query: dict[str, object]) -> str:
        # A name that is a word of Python has a `_` behind it.
        given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
        asked = f"?{urlencode(given, errors='replace')}" if given else ""
        return f"{self._root}{path}{asked}"


def _name(given: str) -> str:
    """An id as the last part of a path. `/` stays: routes take all that is left for it."""
    quoted = quote(given, safe="/", errors="replace")
    # Browsers resolve these two before they ask.
    return "/".join({".": "%2E", "..": "%2E%2E"}.get(part, part) for part in quoted.split("/"))


Word = TypeVar("Word", bound=str)


def wanted(given: str | None, what: str) -> str:
    """What must be named. Raises UsageError."""
    if not given:
        raise UsageError(f"the address names no {what}", hint="go back, and follow a link")
    return given


def known(given: str | None, words: Sequence[Word], what: str) -> Word | None:
    """The word that is given, if one is. Raises InvalidInput for what is none of these."""
    if given is None:
        return None
    for word in words:
        if word == given:
            return word
    raise InvalidInput(f"there is no {what} {given!r}", hint=f"there are {', '.join(words)}")


class About:
    """One thing that has requests. `name` is its id, `kind` what it is."""

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
                "the address must name a turn, an agent, a chat or a box, and one alone",
                hint="go back, and follow a link",
            )
        [(self.kind, self.name)] = named.items()
        self._named = named

    @property
    def view(self) -> str:
        """The entry of the navigation that it belongs to."""
        return {"turn": "Turns", "agent": "Agents", "chat": "Chats", "box": "Boxes"}[self.kind]

    @property
    def address(self) -> str:
        """Its own page."""
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
        """What people call it."""
        shown = self.name if self.kind in ("agent", "chat") else short_id(self.name)
        return f"{self.kind.capitalize()} {shown}"

    @property
    def parameter(self) -> tuple[str, str]:
        """How an address names it."""
        return self.kind, self.name

    def request(self, at: str | None, **query: object) -> str:
        """The page of one of its requests."""
        return self._links.request(**self._named, at=at, **query)

    def diff(self, a: str, b: str) -> str:
        """The page of what differs between two of its steps."""
        return self._links.diff(**self._named, a=a, b=b)
