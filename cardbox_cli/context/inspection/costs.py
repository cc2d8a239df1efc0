"""What the parts of a request cost in tokens.

Texts are counted by the model's tokenizer if it is at hand. What a plain message costs beside its text is
documented for some models. How others wrap theirs, and in which form any model gets tool calls, results,
parts and definitions, nobody documents: that is an estimate, whatever counts it.
"""

import re
from typing import Any, NamedTuple

from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import ModelFacts
from cardbox_cli.model import exact_json

# OpenAI Cookbook, How to count tokens with tiktoken: what is counted for a message, for its name if it has
# one, and for the beginning of the reply. For models of which nobody says it, it is an estimate.
_PER_MESSAGE, _PER_NAME, _REPLY = 3, 1, 3
# An image or a file that is sent as base64 costs by its size in pixels or pages, which nobody decodes here:
# about this much (OpenAI docs, Images and vision: 765 for 1024 x 1024; Anthropic docs, Vision: up to 1,600).
_PER_MEDIUM = 1_000
_MEDIUM = re.compile(r'"data:[^",]*;base64,[^"]*"|(?<="data":)"[A-Za-z0-9+/=]{100,}"')
_PLAIN_ROLES = ("system", "user", "assistant")
_PLAIN_KEYS = frozenset({"role", "content", "name"})


class Cost(NamedTuple):
    """The text of a part, and its tokens; how many of them are an estimate."""

    text: str
    tokens: int
    estimated: int


class Costs:
    """The costs of the parts of requests to a model, by the facts about it.

    `tokenizer` is the name of what counts them.
    """

    def __init__(self, facts: ModelFacts) -> None:
        self._tokenizer = facts.counter
        self._documented = self._tokenizer.exact and facts.documents_overhead is True
        self._of_roles: dict[str, int] = {}
        self.tokenizer = self._tokenizer.name

    @property
    def reply(self) -> Cost:
        """The beginning of the reply, which is counted with the request."""
        return Cost("", _REPLY, 0 if self._documented else _REPLY)

    def of_message(self, message: Message) -> Cost:
        """A message: its text, or else its parts as JSON, its tool calls, and what it is wrapped in.

        One of a group is sent as a part of a message: how that is wrapped is an estimate.
        """
        body = message.body
        count = self._tokenizer.count
        role, name, content = body.get("role"), body.get("name"), body.get("content")
        text = content if isinstance(content, str) else ""
        others = [content if content != text else None, body.get("tool_calls"), body.get("function_call")]
        rest = "".join(_json(value) for value in others if value)
        of_text = count(text)
        named = _PER_NAME + count(name) if isinstance(name, str) else 0
        of_rest = self._of_json(rest) if rest else 0
        tokens = _PER_MESSAGE + self._of_role(str(role)) + named + of_text + of_rest
        if not self._tokenizer.exact or role not in _PLAIN_ROLES:
            estimated = tokens
        elif self._documented and message.group is None and not rest and body.keys() <= _PLAIN_KEYS:
            estimated = 0
        else:
            estimated = tokens - of_text
        return Cost(text + rest, tokens, estimated)

    def _of_role(self, role: str) -> int:
        if role not in self._of_roles:
            self._of_roles[role] = self._tokenizer.count(role)
        return self._of_roles[role]

    def _of_json(self, text: str) -> int:
        words, media = _MEDIUM.subn('""', text)
        return self._tokenizer.count(words) + media * _PER_MEDIUM

    def of_tool(self, tool: dict[str, Any]) -> Cost:
        """The definition of a tool, as it is stored."""
        text = _json(tool)
        tokens = self._tokenizer.count(text)
        return Cost(text, tokens, tokens)


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()
