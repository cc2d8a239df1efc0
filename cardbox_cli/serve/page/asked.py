"""What a page of requests or costs is about: a turn, an agent, a chat or a box, and its addresses. Pure."""

from collections.abc import Sequence
from typing import TypeVar

from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.model.ids import short_id
from cardbox_cli.serve.page.links import Links

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
