"""What the lint says of the body of a request, as `cbx card lint` does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.conversations.conversation_lint import detect_provider, lint_conversation
from cardbox_cli.conversations.formats.registry import choose_format, find_format
from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource
from cardbox_cli.errors import CbxError

_PROJECT = "truth"
# What stands for a rule where a body is refused as no conversation of the format at all.
UNREADABLE = "no-conversation"


def errors(request: dict[str, Any], provider: str) -> dict[str, str]:
    """The rules that find an error in a request to this provider, and what each says first."""
    found: dict[str, str] = {}
    try:
        for each in findings(request, provider):
            if each.severity == "error":
                found.setdefault(each.rule, each.message)
    except CbxError as exc:
        found[UNREADABLE] = exc.message
    return found


def findings(request: dict[str, Any], provider: str, *, rules_of: str | None = None) -> list[LintFinding]:
    """What the rules of a provider, this or another, find in a request in its format.

    Raises CbxError for what is no conversation of the format.
    """
    with _documents(request) as documents:
        return [
            found
            for conversation in find_format(provider).read(documents)
            for found in lint_conversation(conversation, rules_of or provider, _PROJECT)
        ]


def provider_of(request: dict[str, Any]) -> str:
    """For which provider a request is checked where nobody says for which."""
    with _documents(request) as documents:
        module, _ = choose_format(None, documents)
        conversation = next(module.read(documents))
        return detect_provider(conversation) or module.provider


@contextmanager
def _documents(request: dict[str, Any]) -> Iterator[JsonDocuments]:
    with TemporaryFile() as file:
        file.write(json.dumps(request).encode())
        file.flush()
        yield JsonDocuments(JsonSource(file, "request"))
