"""The requests that were really sent, and what the providers said: lines of JSON beside the project."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

# The folder with the data, beside the checkout or its parent, as worktrees have it.
FOLDERS = tuple(Path(__file__).parents[depth] / "shared" / "data" for depth in (3, 4))

# How the data name an API, and the provider's format that it is.
PROVIDERS = {
    "openai-chat-completions": "openai",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "google-generate-content": "gemini",
    "bedrock-converse": "bedrock-converse",
}

# What a provider refuses for a reason that no body shows, by its words.
_NOT_IN_THE_BODY = {
    "does not exist": "the name of a model that nobody has",
    "model identifier is invalid": "the name of a model, which is not in the body",
    "Error while downloading": "an address that gives no image",
}

# Rules of other names that find what a case expects.
SENSES = {"role-unknown": "role-refused"}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was sent. `refused` is what the provider said, None where it was accepted; `expected`
    are the rules that must find an error, None where any will do; `why` says what the case is about."""

    place: str
    api: str
    request: dict[str, Any]
    refused: str | None = None
    expected: list[str] | None = None
    why: str = ""

    @property
    def provider(self) -> str:
        """The name of the provider's format."""
        return PROVIDERS[self.api]

    @property
    def hidden(self) -> str | None:
        """Why the request was refused, where no body shows that."""
        words = self.refused or ""
        return next((why for said, why in _NOT_IN_THE_BODY.items() if said in words), None)


def folder() -> Path | None:
    """Where the data are; None where they are missing."""
    return next((each for each in FOLDERS if each.is_dir()), None)


def recorded(data: Path) -> list[Recorded]:
    """The requests that were sent, in the file's order."""
    return [
        Recorded(
            place=place,
            api=line["api"],
            request=line["request"],
            refused=None if line["status"] == 200 else str(line.get("error")),
        )
        for place, line in _lines(data / "recorded-requests.jsonl")
    ]


def cases(data: Path) -> list[Recorded]:
    """The small requests with the findings that they must have."""
    return [
        Recorded(
            place=place,
            api=line["api"],
            request=line["request"],
            expected=line["expected"],
            refused="yes" if line["expected"] else None,
            why=line["why"],
        )
        for place, line in _lines(data / "lint-cases.jsonl")
    ]


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        yield f"{file.name}:{number}", json.loads(line)
