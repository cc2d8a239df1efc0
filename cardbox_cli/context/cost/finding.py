"""What a finding about costs is, and how rules are entered: a record for each, with a stable code."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from cardbox_cli.context.cost.account import SentPart
from cardbox_cli.context.cost.mending import Mend


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found: in words, the messages that prove it, and how many `tokens` were sent in vain.

    `mend` is the command that helps, where one does; `steps` are those that a finding is about, from 1;
    `remedy` says what to do where the rule's own does not hold.
    """

    message: str
    tokens: int
    parts: Sequence[SentPart] = ()
    steps: Sequence[int] = ()
    mend: Mend | None = None
    remedy: str | None = None


Find = Callable[["CostSubject"], Iterable[Hit]]


class CostRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of waste: its code, what it finds in a sentence, and what to do about it in general."""

    code: str
    finds: str
    remedy: str
    find: Find


class CostRules:
    """The rules of a module, each entered by its function: `@RULES.rule("a-code", remedy=…)`.

    What a rule finds is its function's docstring.
    """

    def __init__(self) -> None:
        self._rules: list[CostRule] = []

    def __iter__(self) -> Iterator[CostRule]:
        return iter(self._rules)

    def rule(self, code: str, *, remedy: str) -> Callable[[Find], Find]:
        """Enter a rule."""

        def enter(find: Find) -> Find:
            finds = " ".join((find.__doc__ or "").split())
            self._rules.append(CostRule(code=code, finds=finds, remedy=remedy, find=find))
            return find

        return enter


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A card that proves a finding: where it stands, its tokens, and in how many requests it was sent."""

    card_id: str | None
    box_id: str | None
    position: int | None
    type: str
    tool: str
    tokens: int
    sends: int


class CostFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a rule found. `tokens` were sent in vain, `share` of all that was sent."""

    code: str
    message: str
    tokens: int
    share: float
    evidence: list[Evidence]
    steps: list[int]
    remedy: str
    mend: Mend | None
