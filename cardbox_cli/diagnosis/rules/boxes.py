"""Rules about what a turn reads and writes: missing boxes and cards, a history that a provider rejects,
and an output box that two turns share.
"""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Proof, Remedy, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import fenced_command
from cardbox_cli.execution.requests.request_checks import LOSSES
from cardbox_cli.model.execution.situations import LossKind


def _missing_box(s: Snapshot) -> Proof:
    # Promotion will create the output box of a queued turn again.
    gone = tuple(
        RowEvidence("public.card_boxes", box.box_id, f"no such row; the turn's {box.pointer} box")
        for box in s.boxes
        if not box.exists and not (box.pointer == "output" and s.queued)
    )
    return gone or None


def _lost_card_rule(kind: LossKind, state: str) -> DiagnosisRule:
    def holds(s: Snapshot) -> Proof:
        lost = tuple(
            RowEvidence(
                "public.cards", lack.card_id or "", f"{state}; in the {lack.pointer} box {lack.box_id}"
            )
            for lack in s.lacking
            if lack.kind == kind
        )
        return lost or None

    return DiagnosisRule(
        name=f"{kind}-card",
        proves=f"A card of the context or profile {LOSSES[kind]}: the model would see less than was packed.",
        rank=_LOSS_RANKS[kind],
        holds=holds,
        actor="the operator: pack the context again and run {rebox}, or end the turn",
        fix=Remedy(_END.shown, lambda s: _end(s, f"a card of its context {LOSSES[kind]}")),
        aside=_is_harmless,
    )


def _is_running(s: Snapshot) -> bool:
    """Return True if a worker has already composed the request. A loss then no longer stops the turn."""
    return s.running and (s.worked_on or not s.silent)


def _is_harmless(s: Snapshot) -> bool:
    return s.incomplete_allowed or _is_running(s)


def _no_profile(s: Snapshot) -> Proof:
    proof = tuple(
        RowEvidence("public.card_boxes", lack.box_id, "holds no sys.profile card; the turn's profile box")
        for lack in s.lacking
        if lack.kind == "no-profile"
    )
    return proof or None


def _end(s: Snapshot, reason: str) -> Command:
    if s.head_status is None:
        return ("turn", "stop", s.agent_turn_id)
    return fenced_command("fail", s, reason)


def _shared_output(s: Snapshot) -> Proof:
    if s.head_status is None or len(s.sharers) < 2:
        return None
    shows = "turn {0.agent_turn_id} writes to output box {0.box_id}"
    return tuple(
        RowEvidence("state.agent_state_head", each.agent_id, shows.format(each)) for each in s.sharers
    )


def _stop_newest_sharer(s: Snapshot) -> Command | None:
    newest = max((sharer.agent_turn_id for sharer in s.sharers), default=None)
    return None if newest is None else ("turn", "stop", newest)


_LOSS_RANKS: dict[LossKind, int] = {"dangling": 88, "deleted": 87, "expired": 86}
_END = Remedy(
    "`cbx turn fail`; `cbx turn stop` if it is queued", lambda s: _end(s, "a box of the turn is gone")
)

RULES = (
    DiagnosisRule(
        name="missing-box",
        proves="The profile, context or output box that the turn points to does not exist.",
        rank=90,
        holds=_missing_box,
        actor="the operator: replace the box with {rebox}, or end the turn",
        fix=_END,
    ),
    _lost_card_rule("dangling", "no such row"),
    _lost_card_rule("deleted", "deleted"),
    _lost_card_rule("expired", "expired"),
    DiagnosisRule(
        name="no-profile",
        proves="The profile box holds no profile: the model would get no system prompt.",
        rank=85,
        holds=_no_profile,
        actor="the operator: end the turn, run `cbx agent provision AGENT --profile P --update`, and"
        " dispatch the turn again",
        fix=Remedy(_END.shown, lambda s: _end(s, "its profile is gone")),
        aside=_is_harmless,
    ),
    DiagnosisRule(
        name="history-refused",
        proves="According to its documentation, the provider rejects the turn's next or last request.",
        severity="warning",
        rank=57,
        holds=lambda s: show.refused(s) or None,
        actor="the operator: {lint} shows why; {repair} makes a repaired copy for `cbx turn rebox`;"
        " or end the turn",
        fix=Remedy(
            "`cbx turn fail`",
            lambda s: None if s.has_ended else _end(s, "the provider would reject its history"),
        ),
        aside=lambda s: s.has_ended or _is_running(s),
        after_end=True,
    ),
    DiagnosisRule(
        name="shared-output",
        proves="The active turns of two agents write to the same output box.",
        severity="warning",
        rank=45,
        holds=_shared_output,
        fix=Remedy("`cbx turn stop` for the newer turn", _stop_newest_sharer),
    ),
)
