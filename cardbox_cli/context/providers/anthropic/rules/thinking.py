"""Rules of Anthropic alone about thinking: it must come back as it was signed, in its place."""

from collections.abc import Iterator
from itertools import groupby

from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.anthropic.blocks import of_server
from cardbox_cli.context.providers.anthropic.encoding import as_blocks, content_of
from cardbox_cli.context.providers.anthropic.rules.sent import SentMessages
from cardbox_cli.model.card_types import REASONING

# The kinds of blocks that thinking comes in.
BLOCKS = ("thinking", "redacted_thinking")

_EXTENDED = "Anthropic docs, Extended thinking: preserving thinking blocks"

RULES = Rules(_EXTENDED)


def is_on(subject: Subject) -> bool:
    """Whether the request has thinking turned on; where it is adaptive, the model turns it on itself."""
    return _mode(subject) == "enabled"


def _mode(subject: Subject) -> str | None:
    return text_at(subject.request.config.get("thinking"), "type")


@RULES.warning("thinking-unsigned", logged="error")
def _unsigned(subject: Subject) -> Iterator[Hit]:
    """Thinking without a signature, which is left out."""
    for entry, card in subject.of_type(REASONING):
        for block in as_blocks(content_of(card)):
            if kind(block) == "thinking" and not block.get("signature"):
                yield entry, "the thinking has no signature, and is left out"


@RULES.error("thinking-modified", remedy="put the original card back, or leave the thinking out")
def _modified(subject: Subject) -> Iterator[Hit]:
    """Thinking that its signature was not made for: edited, or two thoughts with one signature."""
    signed: dict[str, str] = {}
    for entry, card, message in subject.history.messages if REASONING in subject.types else []:
        if card.type != REASONING:
            continue
        for block in as_blocks(message.body["content"]):
            if kind(block) != "thinking":
                continue
            signature, thought = str(block.get("signature")), str(block.get("thinking"))
            if "edited_from" in card.metadata or signed.setdefault(signature, thought) != thought:
                yield entry, "the thinking is not what its signature was made for"


def _late(subject: Subject) -> Iterator[Hit]:
    if _mode(subject) == "adaptive":
        return  # the model thinks in between, too, as it does after what a server's tool found
    sent = subject.view(SentMessages)
    for message in sent.merged:
        if message.role != "assistant" or not message.kinds or message.kinds[0] in BLOCKS:
            continue
        found = next((index for index, name in enumerate(message.kinds) if name in BLOCKS), None)
        if found is not None and not any(map(of_server, message.kinds[:found])):
            before = message.kinds[0] or "strange"
            yield sent.place_in(message, found), f"thinking stands behind a {before} block"


def _torn(subject: Subject) -> Iterator[Hit]:
    """Thinking that another message parts from the message that it belongs to, and came later in."""
    ended: set[str | None] = {None}
    for group, run in groupby(subject.history.messages, key=lambda each: each[2].group):
        for entry, card, _ in run:
            if group in ended and group is not None and card.type == REASONING:
                yield entry, "another message parts the thinking from its own"
        ended.add(group)


@RULES.error(
    "thinking-out-of-order", remedy="put the cards of the message side by side as they were, thinking first"
)
def _out_of_order(subject: Subject) -> Iterator[Hit]:
    """Thinking in a message that does not begin with it, unless it is adaptive or comes after a server's
    tool, or parted from its message by another."""
    if not any(name in subject.view(SentMessages).blocks for name in BLOCKS):
        return
    yield from _late(subject)
    yield from _torn(subject)


@RULES.error("thinking-last", remedy="leave the thinking out, or add what followed it")
def _last(subject: Subject) -> Iterator[Hit]:
    """A last message of the assistant that ends in thinking."""
    sent = subject.view(SentMessages)
    last = sent.prefill
    if last is not None and kind(last.blocks[-1][0]) in BLOCKS:
        yield sent.place_in(last, -1), "the last message ends in thinking"


@RULES.error(
    "thinking-missing", remedy="put the thinking of that message back, or turn thinking off for this request"
)
def _missing(subject: Subject) -> Iterator[Hit]:
    """With thinking on, tool results for a message that does not begin with thinking."""
    sent = subject.view(SentMessages)
    called, answered = sent.at(-2), sent.at(-1)
    if not is_on(subject) or called is None or answered is None:
        return
    is_open = any(kind(block) == "tool_result" for block, _ in answered.blocks)
    if called.role == "assistant" and is_open and kind(called.blocks[0][0]) not in BLOCKS:
        yield sent.place_in(called, 0), "the message that called the tools does not begin with thinking"
