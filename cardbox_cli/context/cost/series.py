"""Requests that were sent one after the other: how each goes on from the one before.

Pure. A source of requests (a turn, an agent, the answers in a box) hands in a list of `Sent`, and need know
nothing more. Requests of one source share the very messages that they have in common, so that whoever looks
at a series looks at each message once.
"""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec

from cardbox_cli.context.composer import with_layers
from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Request
from cardbox_cli.model.layers import CHECKPOINT


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a series in `provider`'s format, and the step of a turn that sent it where one did.

    `behind` are the messages that came after it in the box that it was made of."""

    request: Request
    provider: Provider
    agent_turn_id: str | None = None
    step_id: str | None = None
    behind: Sequence[Message] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """From one request of a series to the next: so many messages at its beginning are `kept`; what the
    earlier one had behind them is `gone`, what the later one has is `added`.

    `same_frame`: model, tools and parameters are the same. `breaks`: a prefix cache loses more than texts
    that stand behind the history, and go on doing so.
    """

    kept: int
    gone: Sequence[Message]
    added: Sequence[Message]
    same_frame: bool
    breaks: bool


def changes(series: Iterable[Sent]) -> Iterable[Change]:
    """The change that each request of a series brings; the first is all added."""
    before: Request | None = None
    for sent in series:
        yield _change(before, sent.request)
        before = sent.request


def conversation(request: Request, provider: Provider) -> Sequence[Sent]:
    """The requests that the answers in a request's history were given to, and the request itself where
    its history does not end with an answer; of a request without answers, itself.

    An answer is a run of messages of the model. The layers are those of the request.
    """
    start, end = history_of(request.messages)
    roles = [message.body.get("role") for message in request.messages[start:end]]
    asked = [place for place in range(1, len(roles)) if _is_asked(roles, place)]
    if not asked or roles[-1] != "assistant":
        asked.append(len(roles))
    return _Asked(request, provider, [start + length for length in asked], end)


class _Asked(Sequence[Sent]):
    """A request up to each of some places of its history, and with what stands behind that: each made when it
    is asked for, since the lists of all together grow with the square of the history."""

    def __init__(self, request: Request, provider: Provider, places: Sequence[int], end: int) -> None:
        self._request, self._provider = request, provider
        self._places, self._end = places, end

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Sent: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Sent]: ...

    def __getitem__(self, at: int | slice) -> Sent | Sequence[Sent]:
        if isinstance(at, slice):
            return _Asked(self._request, self._provider, self._places[at], self._end)
        messages, place = self._request.messages, self._places[at]
        asked = msgspec.structs.replace(self._request, messages=[*messages[:place], *messages[self._end :]])
        return Sent(provider=self._provider, request=asked, behind=messages[place : self._end])


def _is_asked(roles: Sequence[Any], place: int) -> bool:
    """Whether an answer begins at this place of a history."""
    return bool(roles[place] == "assistant" and roles[place - 1] != "assistant")


def history_of(messages: Sequence[Message]) -> tuple[int, int]:
    """Where the history begins in composed messages, and where it ends: what is before and behind is of
    layers. Without a history both are the end."""
    start = 0
    while start < len(messages) and messages[start].layer != CHECKPOINT:
        start += 1
    end = len(messages)
    while end > start and messages[end - 1].layer != CHECKPOINT:
        end -= 1
    return start, end


def _change(before: Request | None, request: Request) -> Change:
    messages = request.messages
    if before is None:
        return Change(kept=0, gone=(), added=messages, same_frame=False, breaks=False)
    kept = common(before.messages, messages)
    gone, added = before.messages[kept:], messages[kept:]
    same_frame = _frame(before) == _frame(request)
    goes_on = same_frame and before.lost_layers == request.lost_layers and _moves(gone, added)
    return Change(kept=kept, gone=gone, added=added, same_frame=same_frame, breaks=not goes_on)


def _moves(gone: Sequence[Message], added: Sequence[Message]) -> bool:
    """Whether what is gone stands behind the history, and again at the end of what is added."""
    behind = added[len(added) - len(gone) :]
    return len(gone) <= len(added) and all(
        one.layer != CHECKPOINT and one.body == other.body for one, other in zip(gone, behind, strict=True)
    )


def common(ones: Sequence[Message], others: Sequence[Message]) -> int:
    """How many messages both begin with."""
    shorter = min(len(ones), len(others))
    if ones[:shorter] == others[:shorter]:
        return shorter
    return next((place for place in range(shorter) if ones[place].body != others[place].body), shorter)


def _frame(request: Request) -> tuple[Any, ...]:
    return request.model, request.tools, request.config


def kept_before_lost(before: Request, request: Request) -> int:
    """How many messages stand before the first layer that tells two requests apart by its hash alone."""
    start, _ = history_of(request.messages)
    names = before.lost_layers.keys() | request.lost_layers.keys()
    texts = {name: "" for name in names if before.lost_layers.get(name) != request.lost_layers.get(name)}
    if not texts:
        return len(request.messages)
    placed = with_layers(request.messages[: start + 1], texts, request.layout)
    return next(place for place, message in enumerate(placed) if message.layer in texts)
