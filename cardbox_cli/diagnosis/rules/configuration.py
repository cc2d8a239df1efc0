"""Rules about how an agent and its project are set up, where that keeps workers from a turn that is due."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Evidence, Proof, Remedy
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import LiveWorker
from cardbox_cli.text import closest, command_line, quoted


def _waits_in_vain(s: Snapshot) -> bool:
    """Work is due for too long, its target is known, and nobody alive serves it here."""
    if s.worker_target is None or not s.keeps_turns or s.live_workers or s.running:
        return False
    return bool(s.unclaimed)


def _late(s: Snapshot) -> tuple[Evidence, ...]:
    return tuple(show.due_row(s, row) for row in s.unclaimed)


def _roster(s: Snapshot) -> Evidence:
    return Evidence("resource.project_agents", s.agent_id, f"worker target {s.worker_target}")


def _serving(s: Snapshot, target: str | None) -> tuple[LiveWorker, ...]:
    return tuple(worker for worker in s.setup.serving if worker.worker_target == target)


def _not_on_roster(s: Snapshot) -> Proof:
    if s.setup.on_roster or s.running or not s.unclaimed:
        return None
    return (*_late(s), Evidence("resource.project_agents", s.agent_id, "no such row"))


def _provision(s: Snapshot, *options: str) -> Command | None:
    name = s.setup.profile_name
    return None if name is None else ("agent", "provision", s.agent_id, "--profile", name, *options)


def _outdated(s: Snapshot) -> bool:
    target = s.setup.profile_target
    return _waits_in_vain(s) and target != s.worker_target and bool(_serving(s, target))


def _outdated_target(s: Snapshot) -> Proof:
    if not _outdated(s):
        return None
    profile = Evidence(
        "resource.profiles", s.setup.profile_name or "", f"worker target {s.setup.profile_target}"
    )
    return (*_late(s), _roster(s), profile, *show.live_workers(_serving(s, s.setup.profile_target)))


def _meant(s: Snapshot) -> str | None:
    """The target of a live worker that is spelt nearly as the agent's."""
    if not _waits_in_vain(s) or _outdated(s) or s.setup.profile_name is None:
        return None
    return closest(s.worker_target or "", {worker.worker_target for worker in s.setup.serving})


def _misspelt_target(s: Snapshot) -> Proof:
    target = _meant(s)
    return None if target is None else (*_late(s), _roster(s), *show.live_workers(_serving(s, target)))


def _either_slip(s: Snapshot) -> str:
    """Both ways to go on: which of the two names is the slip, no row tells."""
    corrected = command_line(_provision(s, "--worker-target", _meant(s) or "", "--update") or ())
    return (
        f"the operator: if the agent's target is the slip, `{corrected}`, and correct its profile; if the "
        f"worker's is, `cbx worker run --target {quoted(s.worker_target or '')} --exec CMD`"
    )


def _worker_elsewhere(s: Snapshot) -> Proof:
    if not _waits_in_vain(s) or not s.setup.elsewhere:
        return None
    return (*_late(s), *show.live_workers(s.setup.elsewhere, ", serves another project alone"))


def _archived(s: Snapshot) -> Proof:
    project = s.setup.archived
    return None if project is None else (Evidence("public.projects", project, "archived"),)


RULES = (
    DiagnosisRule(
        name="not-on-roster",
        proves="Work has been due for more than {unclaimed}, and the agent is not on the roster.",
        rank=56,
        holds=_not_on_roster,
        actor="the operator: put the agent on the roster again, `cbx agent provision`",
        fix=Remedy("`cbx agent provision`", lambda s: _provision(s)),
    ),
    DiagnosisRule(
        name="target-outdated",
        proves="No live worker serves the agent's target, and one serves that of its profile as it is now.",
        rank=56,
        holds=_outdated_target,
        actor="the operator: bring the agent up to date with its profile, or start a worker,"
        " `cbx worker run --target {target} --exec CMD`",
        fix=Remedy(
            "`cbx agent provision --update`",
            lambda s: _provision(s, "--worker-target", s.setup.profile_target or "", "--update"),
        ),
    ),
    DiagnosisRule(
        name="target-misspelt",
        proves="No live worker serves the agent's target, and one serves a target of nearly the same name.",
        rank=56,
        holds=_misspelt_target,
        actor=_either_slip,
    ),
    DiagnosisRule(
        name="worker-elsewhere",
        proves="No live worker of the agent's target serves the project; one serves another project alone.",
        rank=56,
        holds=_worker_elsewhere,
        actor="the operator: start a worker in this project, `cbx worker run --target {target} --exec CMD`,"
        " or one with --all-projects",
    ),
    DiagnosisRule(
        name="project-archived",
        proves="The project is archived: it accepts no new turns; those that it has are run.",
        verdict="seen",
        severity="warning",
        rank=5,
        holds=_archived,
        actor="the operator: `cbx project update --status active` opens it again",
    ),
)
