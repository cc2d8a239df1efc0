"""What the parts of a request cost in tokens.

Texts are counted by the model's tokenizer if it is at hand. What a plain message costs beside its text OpenAI
documents for some models. How others wrap theirs, and how tool calls, results, parts and definitions are
spelled to any model, nobody documents: that is an estimate, whatever counts it.
"""

import re
from typing import Any, NamedTuple

from cardbox_cli.context.messages import Message
from cardbox_cli.model import exact_json
from cardbox_cli.model.tokens import bare_name, tokenizer_for

# OpenAI Cookbook, How to count tokens with tiktoken: what is counted for a message, for its name if it has
# one, and for the beginning of the reply; and the models that this is said of.
_PER_MESSAGE, _PER_NAME, _REPLY = 3, 1, 3
_DOCUMENTED = re.compile(r"gpt-(3\.5|35|4o?)([-@:].*)?")
# An image or a file that is sent as base64 costs by its size in pixels or pages, which nobody decodes here:
# about this much (OpenAI docs, Images and vision: 765 for 1024 x 1024; Anthropic docs, Vision: up to 1,600).
_PER_MEDIUM = 1_000
_MEDIUM = re.compile(r'"data:[^",]*;base64,[^"]*"|(?<="data":)"[A-Za-z0-9+/=]{100,}"')
_PLAIN_ROLES = ("system", "user", "assistant")
_PLAIN_KEYS = frozenset({"role", "content", "name"})


class Cost(NamedTuple):
    """What a part says, and its tokens; how many of them are an estimate."""

    said: str
    tokens: int
    estimated: int


class Costs:
    """The costs of the parts of requests to one model. `tokenizer` is the name of what counts them."""

    def __init__(self, model: str | None) -> None:
        self._tokenizer = tokenizer_for(model)
        self._documented = self._tokenizer.exact and _DOCUMENTED.fullmatch(bare_name(model)) is not None
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
        role, name, content = (body.get(key) for key in ("role", "name", "content"))
        text = content if isinstance(content, str) else ""
        others = [content if content != text else None, body.get("tool_calls"), body.get("function_call")]
        rest = "".join(_json(value) for value in others if value)
        of_text = count(text)
        named = _PER_NAME + count(name) if isinstance(name, str) else 0
        words, media = _MEDIUM.subn('""', rest)
        tokens = _PER_MESSAGE + count(str(role)) + named + of_text + count(words) + media * _PER_MEDIUM
        if not self._tokenizer.exact or role not in _PLAIN_ROLES:
            estimated = tokens
        elif self._documented and message.group is None and not rest and body.keys() <= _PLAIN_KEYS:
            estimated = 0
        else:
            estimated = tokens - of_text
        return Cost(text + rest, tokens, estimated)

    def of_tool(self, tool: dict[str, Any]) -> Cost:
        """The definition of a tool, as it is stored."""
        said = _json(tool)
        tokens = self._tokenizer.count(said)
        return Cost(said, tokens, tokens)


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()
