"""Rules about the setup of an agent and its project that keeps workers from a due turn."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Proof, Remedy, RowEvidence, seen_rule
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import LiveWorker
from cardbox_cli.text.command_lines import command_line, quote_word
from cardbox_cli.text.error_messages import closest


def _lacks_worker(s: Snapshot) -> bool:
    """Return True if work is overdue, its target is known, and no live worker serves that target here."""
    is_unserved = s.worker_target is not None and s.keeps_turns and not s.live_workers
    return is_unserved and not s.running and bool(s.unclaimed)


def _roster(s: Snapshot) -> RowEvidence:
    return RowEvidence("resource.project_agents", s.agent_id, f"worker target {s.worker_target}")


def _serving(s: Snapshot, target: str | None) -> tuple[LiveWorker, ...]:
    return tuple(worker for worker in s.setup.serving if worker.worker_target == target)


def _not_on_roster(s: Snapshot) -> Proof:
    if s.setup.on_roster or s.running or not s.unclaimed:
        return None
    return (*show.unclaimed_rows(s), RowEvidence("resource.project_agents", s.agent_id, "no such row"))


def _provision(s: Snapshot, *options: str) -> Command | None:
    name = s.setup.profile_name
    return None if name is None else ("agent", "provision", s.agent_id, "--profile", name, *options)


def _is_outdated(s: Snapshot) -> bool:
    target = s.setup.profile_target
    return _lacks_worker(s) and target != s.worker_target and bool(_serving(s, target))


def _outdated_target(s: Snapshot) -> Proof:
    if not _is_outdated(s):
        return None
    profile = RowEvidence(
        "resource.profiles", s.setup.profile_name or "", f"worker target {s.setup.profile_target}"
    )
    return (
        *show.unclaimed_rows(s),
        _roster(s),
        profile,
        *show.live_workers(_serving(s, s.setup.profile_target)),
    )


def _similar_target(s: Snapshot) -> str | None:
    """Return the target of a live worker that has nearly the same name as the agent's target."""
    if not _lacks_worker(s) or _is_outdated(s) or s.setup.profile_name is None:
        return None
    return closest(s.worker_target or "", {worker.worker_target for worker in s.setup.serving})


def _misspelt_target(s: Snapshot) -> Proof:
    target = _similar_target(s)
    return (
        None
        if target is None
        else (*show.unclaimed_rows(s), _roster(s), *show.live_workers(_serving(s, target)))
    )


def _correct_either_target(s: Snapshot) -> str:
    """Offer both corrections: no row shows which of the two names is wrong."""
    correction = command_line(_provision(s, "--worker-target", _similar_target(s) or "", "--update") or ())
    return (
        f"the operator: if the agent's target is wrong, run `{correction}` and correct its profile; if the "
        f"worker's is wrong, run `cbx worker run --target {quote_word(s.worker_target or '')} --exec CMD`"
    )


def _worker_elsewhere(s: Snapshot) -> Proof:
    if not _lacks_worker(s) or not s.setup.elsewhere:
        return None
    return (*show.unclaimed_rows(s), *show.live_workers(s.setup.elsewhere, ", serves only another project"))


def _archived(s: Snapshot) -> Proof:
    project = s.setup.archived
    return None if project is None else (RowEvidence("public.projects", project, "archived"),)


RULES = (
    DiagnosisRule(
        name="not-on-roster",
        proves="Work has been due for more than {unclaimed}, and the agent is not on the roster.",
        rank=56,
        holds=_not_on_roster,
        actor="the operator: add the agent to the roster again with `cbx agent provision`",
        fix=Remedy("`cbx agent provision`", lambda s: _provision(s)),
    ),
    DiagnosisRule(
        name="target-outdated",
        proves="No live worker serves the agent's target, but one serves its profile's present target.",
        rank=56,
        holds=_outdated_target,
        actor="the operator: update the agent from its profile, or start a worker with"
        " `cbx worker run --target {target} --exec CMD`",
        fix=Remedy(
            "`cbx agent provision --update`",
            lambda s: _provision(s, "--worker-target", s.setup.profile_target or "", "--update"),
        ),
    ),
    DiagnosisRule(
        name="target-misspelt",
        proves="No live worker serves the agent's target, but one serves a target with nearly the same name.",
        rank=56,
        holds=_misspelt_target,
        actor=_correct_either_target,
    ),
    DiagnosisRule(
        name="worker-elsewhere",
        proves="No live worker of the agent's target serves this project; one serves only another project.",
        rank=56,
        holds=_worker_elsewhere,
        actor="the operator: start a worker in this project with"
        " `cbx worker run --target {target} --exec CMD`, or one with --all-projects",
    ),
    seen_rule(
        name="project-archived",
        proves="The project is archived: it accepts no new turns, but workers still run its existing turns.",
        rank=5,
        holds=_archived,
        actor="the operator: `cbx project update --status active` reopens it",
    ),
)
