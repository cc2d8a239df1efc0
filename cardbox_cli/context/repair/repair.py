"""Repairs of a box's list, so that providers accept it. The providers' lint finds the errors.

Pure, and changes nothing that is stored. Each pass runs the lint of every provider and repairs the errors of
one type. The next pass finds errors that a repair caused. If no repair exists for an error, the card loses
its imported original. If the error remains, the card is dropped. So the passes always end.
"""

from collections.abc import Callable, Container, Sequence

import msgspec

from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.messages import is_user
from cardbox_cli.context.parts import list_of, text_at
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.repair import changes
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.model.boxes import REPLACED
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.execution.turns import new_id

# The lint rules about results that are missing, repeated, or not directly after their call.
_TORN = frozenset(
    {"call-without-result", "result-without-call", "result-repeated"}
    | {"result-not-after-call", "exchange-split"}
)
_IDS = frozenset({"tool-id-repeated", "tool-id-too-long"})

# Maps a lint rule to the function that rewrites a card with this error. It returns None if it cannot.
_REWRITES: dict[str, Callable[[Card, str], CardDraft | None]] = {
    "arguments-invalid": changes.wrap_arguments,
    "role-unknown": changes.set_type_role,
    "trailing-whitespace": changes.strip_trailing_space,
    "tool-id-missing": lambda card, author: _drop_nameless_calls(card, author),
}
_BEGINNING = "first-message-not-user"


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a repair. `box_id` is the box of `entries`. The entries `before` come first in the
    request and do not change.

    If `synthesizes`, missing cards are added; otherwise the calls or cards without them are dropped. Results
    of the calls in `awaited` are still to come.
    """

    project_id: str
    box_id: str
    entries: Sequence[RequestEntry]
    before: Sequence[RequestEntry] = ()
    providers: Sequence[Provider]
    synthesizes: bool
    awaited: Container[str] = ()
    author_id: str


class RepairOutcome(msgspec.Struct, frozen=True):
    """The places of the new box and the changes. `left` has the errors that no change can repair."""

    places: list[changes.CallPlace]
    changes: "list[changes.Change]"
    left: list[LintFinding]


def repair(request: RepairRequest) -> RepairOutcome:
    """Repair the list until no provider's rules find an error at one of its cards."""
    repairing = _Repair(request)
    while errors := repairing.errors():
        here = [finding for finding in errors if repairing.is_here(finding)]
        if not here:
            break
        repairing.repair_errors(here)
    return RepairOutcome(repairing.places, repairing.list_changes(), errors)


class _Repair:
    """The list after some passes."""

    def __init__(self, request: RepairRequest) -> None:
        self._request = request
        self._author = request.author_id
        self.places = changes.places_of(request.entries)
        self._findings: dict[int | str, LintFinding] = {}

    def errors(self) -> list[LintFinding]:
        """Return the errors of the lint, without errors at cards of other boxes."""
        request = self._request
        entries = [*request.before, *changes.entries_of(self.places, request.box_id)]
        findings = (
            finding
            for provider in request.providers
            for made in [request_of(entries, encode=provider.encode)]
            for finding in lint(entries, made, provider, awaited=request.awaited)
        )
        return [
            finding
            for finding in findings
            if finding.severity == "error" and (finding.card_id is None or self.is_here(finding))
        ]

    def is_here(self, finding: LintFinding) -> bool:
        return finding.card_id is not None and finding.box_id == self._request.box_id

    def repair_errors(self, errors: Sequence[LintFinding]) -> None:
        """Repair the errors of one type. Missing cards come first, then cards to rewrite, then exchanges."""
        for repair_step in (self._drop_gone, self._rewrite, self._rename, self._join, self._begin):
            if repair_step(errors):
                return
        self._give_up([finding for finding in errors if finding.rule == errors[0].rule])

    def _drop_gone(self, errors: Sequence[LintFinding]) -> bool:
        gone = [finding for finding in errors if self._place(finding).card is None]
        return self._drop({finding.position or 0: finding for finding in gone})

    def _rewrite(self, errors: Sequence[LintFinding]) -> bool:
        done: set[int] = set()
        for finding in errors:
            card, at = self._place(finding).card, finding.position or 0
            write = _REWRITES.get(finding.rule)
            if write is not None and card is not None and at not in done:
                draft = write(card, self._author)
                if draft is not None:
                    self._put(at, draft, finding)
                    done.add(at)
        return bool(done)

    def _rename(self, errors: Sequence[LintFinding]) -> bool:
        """Give the calls of one card new ids, and their results the same ids."""
        finding = next((finding for finding in errors if finding.rule in _IDS), None)
        if finding is None:
            return False
        at = finding.position or 0
        known = changes.exchanges_of(self.places)
        answers = [place for place, caller in known.results.items() if caller == at]
        ids = [text_at(call, "id") for call in list_of(known.messages[at].tool_calls)]
        renamed = [
            self._rename_call(at, index, old, answers, finding) for index, old in enumerate(ids) if old
        ]
        return any(renamed)

    def _rename_call(self, at: int, index: int, old: str, answers: list[int], finding: LintFinding) -> bool:
        """Give a call and its result a new id, and return whether that was possible. The result is the first
        place in `answers` with the old id, and is removed from `answers`."""
        card = self.places[at].card
        draft = None if card is None else changes.replace_call_id(card, index, new_id("tc"), self._author)
        if draft is None or draft.tool_calls is None:
            return False
        self._put(at, draft, finding)
        for place in answers:
            result = self.places[place].card
            if result is not None and result.tool_call_id == old:
                answer = changes.rewrite(result, self._author, tool_call_id=draft.tool_calls[index]["id"])
                if answer is not None:
                    self._put(place, answer, finding)
                answers.remove(place)
                break
        return True

    def _join(self, errors: Sequence[LintFinding]) -> bool:
        """Repair exchanges. Works from the last place to the first, since a change moves later places."""
        torn = {finding.position or 0: finding for finding in errors if finding.rule in _TORN}
        known = changes.exchanges_of(self.places)
        orphans = {
            at: finding
            for at, finding in torn.items()
            if at in known.messages and known.messages[at].type == TOOL_RESULT and at not in known.results
        }
        if self._drop(orphans):
            return True
        closing = [at for at in sorted(torn, reverse=True) if at in known.open]
        closed = [self._close(at, known, torn[at]) for at in closing]
        if any(closed):
            return True
        moved = False
        for at in sorted(torn):
            known = changes.exchanges_of(self.places)
            caller = known.results.get(at)
            # Do not move a result that already follows its call: two such results would swap forever.
            if caller is not None and not caller < at < known.end_of(caller):
                moved |= self._move(at, caller, torn[at])
        return moved

    def _close(self, at: int, known: changes.Exchanges, finding: LintFinding) -> bool:
        """Add results to the open calls of a card, or drop these calls. Awaited calls stay open."""
        card, awaited = known.messages[at], self._request.awaited
        calls = list_of(card.tool_calls)
        indexes = [index for index in known.open[at] if calls[index]["id"] not in awaited]
        if not indexes:
            return False
        if not self._request.synthesizes:
            draft = changes.drop_calls(card, indexes, self._author)
            if draft is None:
                return self._drop({at: finding})
            self._put(at, draft, finding)
            return True
        end = known.end_of(at)
        for number, index in enumerate(indexes):
            self._insert(end + number, changes.interrupted_result(calls[index], self._author), at, finding)
        return True

    def _move(self, at: int, caller: int, finding: LintFinding) -> bool:
        place = self.places.pop(at)
        end = changes.exchanges_of(self.places).end_of(caller)
        self.places.insert(end, place)
        if end != at and place.origin is not None:
            self._note(place, finding)
        return end != at

    def _begin(self, errors: Sequence[LintFinding]) -> bool:
        """Add a user message at the beginning, or drop the cards before the first one."""
        finding = next((finding for finding in errors if finding.rule == _BEGINNING), None)
        if finding is None:
            return False
        at = finding.position or 0
        if self._request.synthesizes:
            self._insert(at, changes.beginning_card(self._author), at, finding)
            return True
        known = changes.exchanges_of(self.places)
        users = (place for place, card in known.messages.items() if place > at and is_user(card))
        end = next(users, len(self.places))
        early = (place for place in known.messages if at <= place < end)
        return self._drop(dict.fromkeys(early, finding))

    def _give_up(self, errors: Sequence[LintFinding]) -> None:
        """Drop the imported originals of the cards with these errors. Drop cards without an original."""
        lost: dict[int, LintFinding] = {}
        for finding in {finding.position or 0: finding for finding in errors}.values():
            card = self._place(finding).card
            draft = None if card is None else changes.drop_original(card, self._author)
            if draft is None:
                lost[finding.position or 0] = finding
            else:
                self._put(finding.position or 0, draft, finding)
        self._drop(lost)

    # --- the list

    def list_changes(self) -> list[changes.Change]:
        """Return the changes in the order of the old list; added cards come last."""
        now = {place.origin: place for place in self.places}
        before = changes.places_of(self._request.entries)
        changed = [self._change(place, now.get(place.origin)) for place in before]
        added = [
            self._make_change("added", place, self._findings[place.slot.card_id])
            for place in self.places
            if place.origin is None
        ]
        return [*filter(None, changed), *added]

    def _change(self, place: changes.CallPlace, now: changes.CallPlace | None) -> changes.Change | None:
        assert place.origin is not None
        finding = self._findings.get(place.origin)
        if finding is None:
            return None
        if now is None or now.draft is None:
            return self._make_change("dropped" if now is None else "moved", place, finding)
        return self._make_change("rewritten", place, finding, new=now.slot.card_id)

    def _make_change(
        self, kind: changes.ChangeKind, place: changes.CallPlace, finding: LintFinding, new: str | None = None
    ) -> changes.Change:
        return changes.Change(
            kind=kind,
            position=place.origin,
            card_id=place.slot.card_id,
            new_card_id=new,
            rule=finding.rule,
            reason=finding.message,
        )

    def _place(self, finding: LintFinding) -> changes.CallPlace:
        return self.places[finding.position or 0]

    def _drop(self, dropped: dict[int, LintFinding]) -> bool:
        for at, finding in dropped.items():
            self._note(self.places[at], finding)
        self.places = [place for at, place in enumerate(self.places) if at not in dropped]
        return bool(dropped)

    def _put(self, at: int, draft: CardDraft, finding: LintFinding) -> None:
        old = self.places[at]
        if old.draft is not None:
            # The card that it replaces is the stored one.
            origin = {
                key: old.draft.metadata[key] for key in (changes.EDITED_FROM,) if key in old.draft.metadata
            }
            kept = {key: value for key, value in draft.metadata.items() if key != changes.EDITED_FROM}
            draft = msgspec.structs.replace(draft, metadata={**kept, **origin})
        self._note(old, finding)
        place = changes.new_place(draft, self._request.project_id, origin=old.origin, rule=_new_rule(old))
        if place.origin is None:
            self._findings[place.slot.card_id] = finding
        self.places[at] = place

    def _insert(self, at: int, draft: CardDraft, beside: int, finding: LintFinding) -> None:
        rule = _new_rule(self.places[beside])
        place = changes.new_place(draft, self._request.project_id, origin=None, rule=rule)
        self.places.insert(at, place)
        self._note(place, finding)

    def _note(self, place: changes.CallPlace, finding: LintFinding) -> None:
        self._findings[place.slot.card_id if place.origin is None else place.origin] = finding


def _new_rule(place: changes.CallPlace) -> str | None:
    return None if place.rule is None else REPLACED


def _drop_nameless_calls(card: Card, author_id: str) -> CardDraft | None:
    nameless = [index for index, call in enumerate(list_of(card.tool_calls)) if not text_at(call, "id")]
    return changes.drop_calls(card, nameless, author_id) if nameless else None
