"""The first difference between two requests as they are sent, and the tokens that it costs a prefix cache.

Pure. A model's prefix cache covers the longest known beginning of a request: tools, system text, messages.
`cached_parameters` of the provider come before the messages. Messages are compared as they are sent, joined
and sorted. A layer without a known text is compared by its hash, and its tokens are not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.composer import add_missing_layers
from cardbox_cli.context.explain import Explanation, MessageLine, ToolLine, explain
from cardbox_cli.context.provider import Provider, SentMessage
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json

_MODEL, _TOOLS, _SYSTEM, _CHOICES, _MESSAGES, _REST = range(6)

# Sections with numbered pieces, and the name of one piece. Every other section is a single parameter.
_COUNTED = {"messages": "message", "system": "system text", "tools": "tool"}


def piece_name(section: str, number: int) -> str:
    """Return the name of a piece of a request: "message 3", or the parameter's name."""
    return f"{_COUNTED[section]} {number}" if section in _COUNTED else section


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a part of a request. `messages` includes texts of the system prompt. `uncounted` is the
    number of pieces without a known text, which add no tokens."""

    messages: int
    tokens: int
    tokens_exact: bool
    uncounted: int = 0


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is sent: a message or a part of one, a tool, a text of the system prompt, a parameter.

    `number` counts the pieces of a section from 1; parts of one message have the same number. `differing` is
    set only if both pieces have the same `text`: it has the keys that the other piece lacks or has with
    another value. `sha256` is the hash of the text if the text is unknown, else None.
    """

    section: str
    number: int
    role: str | None = None
    layer: str | None = None
    card_ids: list[str] = []
    tokens: int
    tokens_exact: bool
    text: str
    differing: dict[str, Any] | None = None
    sha256: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first piece of each request that differs, or None if it has no more pieces in that section."""

    a: Piece | None
    b: Piece | None


class RequestDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference between the requests `a` and `b`.

    `kept` is the size of the beginning that both share. For equal requests it is the whole request, with the
    beginning of the reply. `a_after` and `b_after` are the sizes from the difference on. `new` has the
    messages that `b` appends to `a` if nothing else differs. `a_lost` and `b_lost` name layers without a
    known text.
    """

    equal: bool
    kept: Extent
    difference: Difference | None
    a_after: Extent
    b_after: Extent
    new: list[Piece] = []
    a_lost: list[str] = []
    b_lost: list[str] = []

    @property
    def continues(self) -> bool:
        """True if `b` is `a` with more messages at the end."""
        return bool(self.new)


def diff(a: Request, b: Request, provider: Provider) -> RequestDiff:
    """Compare two requests to `provider`, both in its format."""
    a, b = _restore_lost_layers(a, b), _restore_lost_layers(b, a)
    account = _explain_known_texts(a, provider)
    ones, others = (
        list(_pieces(a, account, provider)),
        list(_pieces(b, _explain_known_texts(b, provider), provider)),
    )
    shorter = min(len(ones), len(others))
    parting = next((place for place in range(shorter) if ones[place].sent != others[place].sent), shorter)
    is_equal = parting == len(ones) == len(others)
    kept = _extent(ones[:parting])
    if is_equal:
        kept = msgspec.structs.replace(kept, tokens=account.tokens, tokens_exact=account.tokens_exact)
    return RequestDiff(
        equal=is_equal,
        kept=kept,
        difference=None if is_equal else _difference(ones[parting:], others[parting:]),
        a_after=_extent(ones[parting:]),
        b_after=_extent(others[parting:]),
        new=[each.piece for each in _added_prefix(ones[parting:], others[parting:])],
        a_lost=list(a.lost_layers),
        b_lost=list(b.lost_layers),
    )


def _restore_lost_layers(request: Request, other: Request) -> Request:
    """Return the request with its lost layers: with their text if `other` has it, else with their hash."""
    if not request.lost_layers:
        return request
    known = {layer.sha256: layer.text for layer in other.layers}
    texts = {name: known.get(sha256, sha256) for name, sha256 in request.lost_layers.items()}
    return msgspec.structs.replace(
        request,
        messages=add_missing_layers(request.messages, texts, request.layout),
        lost_layers={name: each for name, each in request.lost_layers.items() if each not in known},
    )


def _explain_known_texts(request: Request, provider: Provider) -> Explanation:
    account, lost = explain(request, provider), request.lost_layers
    if not any(line.layer in lost for line in account.messages):
        return account
    tokens = account.tokens - sum(line.tokens for line in account.messages if line.layer in lost)
    nothing = {"characters": 0, "tokens": 0, "tokens_exact": False, "preview": ""}
    lines = [
        msgspec.structs.replace(line, **nothing) if line.layer in lost else line for line in account.messages
    ]
    return msgspec.structs.replace(account, messages=lines, tokens=tokens, tokens_exact=False)


class _SentPiece(NamedTuple):
    """A piece, the rank of its section, and its value and encoded bytes without `cache_control`."""

    piece: Piece
    rank: int
    value: Any
    sent: bytes


def _difference(ones: Sequence[_SentPiece], others: Sequence[_SentPiece]) -> Difference:
    """Return the first piece of each side. If their sections differ, only the earlier one's piece is set."""
    ranks = [rest[0].rank for rest in (ones, others) if rest]
    a, b = (rest[0] if rest and rest[0].rank == min(ranks) else None for rest in (ones, others))
    is_known = not any(each is not None and each.piece.sha256 for each in (a, b))
    if a is None or b is None or not is_known or a.piece.text != b.piece.text:
        return Difference(a=a and a.piece, b=b and b.piece)
    return Difference(a=_show_differing_keys(b, a), b=_show_differing_keys(a, b))


def _added_prefix(ones: Sequence[_SentPiece], others: Sequence[_SentPiece]) -> Sequence[_SentPiece]:
    """Return the messages at the beginning of `others` if the rest equals `ones` and has only parameters."""
    more = len(others) - len(ones)
    if more <= 0 or any(each.rank != _REST for each in ones):
        return ()
    added, rest = others[:more], others[more:]
    is_pure = all(each.rank == _MESSAGES for each in added)
    return added if is_pure and [each.sent for each in rest] == [each.sent for each in ones] else ()


def _show_differing_keys(other: _SentPiece, one: _SentPiece) -> Piece:
    """Return the piece of `one` with the keys that differ from `other`, or all if only the order differs."""
    if not isinstance(one.value, dict) or not isinstance(other.value, dict):
        return one.piece
    sides = [{key: exact_json.encode(each) for key, each in side.value.items()} for side in (one, other)]
    keys = {key for key, _ in sides[0].items() ^ sides[1].items()} or one.value.keys()
    differing = {key: each for key, each in one.value.items() if key in keys}
    return msgspec.structs.replace(one.piece, differing=differing)


def _pieces(request: Request, account: Explanation, provider: Provider) -> Iterator[_SentPiece]:
    """Yield all pieces in the order of the prefix cache. Parameters outside of that prefix come last."""
    body, before = provider.body(request), provider.cached_parameters
    yield _comparable("model", _MODEL, body.get("model"))
    tools, besides = provider.split_tools(body)
    offered = provider.offered_tools(request)
    lines = [line for tool, line in zip(request.tools, account.tools, strict=True) if tool in offered]
    for number, (tool, line) in enumerate(zip(tools, lines, strict=True), 1):
        yield _comparable("tools", _TOOLS, tool, number, [line])
    sent = list(provider.sent_messages(request))
    lost = request.lost_layers
    yield from (_message(each, _SYSTEM, account, lost) for each in sent if each.section == "system")
    yield from (_comparable(name, _CHOICES, besides.get(name)) for name in before)
    yield from (_message(each, _MESSAGES, account, lost) for each in sent if each.section == "messages")
    rest = sorted(besides.keys() - {"model", *before, *provider.message_keys})
    yield from (_comparable(name, _REST, besides[name]) for name in rest)


def _message(sent: SentMessage, rank: int, account: Explanation, lost: Mapping[str, str]) -> _SentPiece:
    section, number, body, places = sent
    lines = [account.messages[place] for place in places]
    return _comparable(
        section,
        rank,
        body,
        number,
        lines,
        text="\n".join(line.preview for line in lines),
        role=str(body.get("role")),
        layer=lines[0].layer,
        card_ids=[each for line in lines for each in ([line.card_id] if line.card_id else line.made_of)],
        sha256=lost.get(lines[0].layer),
    )


def _comparable(
    section: str,
    rank: int,
    value: Any,
    number: int = 1,
    lines: Sequence[MessageLine | ToolLine] = (),
    **known: Any,
) -> _SentPiece:
    """Return the piece for a value of the body. `known` sets further fields of the piece."""
    piece = Piece(
        section=section,
        number=number,
        tokens=sum(line.tokens for line in lines),
        tokens_exact=all(line.tokens_exact for line in lines),
        **{"text": exact_json.encode(value).decode(), **known},
    )
    bare = _remove_cache_marks(value)
    # The hash of an unknown text never equals a known text, even one with the same characters.
    kind = section if piece.sha256 is None else f"{section} by hash"
    return _SentPiece(piece, rank, bare, kind.encode() + exact_json.encode(bare))


def _remove_cache_marks(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    bare = {key: each for key, each in value.items() if key != "cache_control"}
    if isinstance(bare.get("content"), list):
        bare["content"] = [_remove_cache_marks(block) for block in bare["content"]]
    return bare


def _extent(pieces: Sequence[_SentPiece]) -> Extent:
    messages = {(each.rank, each.piece.number) for each in pieces if each.rank in (_SYSTEM, _MESSAGES)}
    return Extent(
        messages=len(messages),
        tokens=sum(each.piece.tokens for each in pieces),
        tokens_exact=all(each.piece.tokens_exact for each in pieces),
        uncounted=sum(each.piece.sha256 is not None for each in pieces),
    )
