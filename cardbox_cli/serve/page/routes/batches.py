"""Batches, and one as a tree of what its children do."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_page import Branch, summary, tree
from cardbox_cli.model.execution.batches import TASK_OPEN
from cardbox_cli.orchestration.batch_progress import (
    BatchView,
    TaskProgress,
    batch_view,
    foreign_view,
    progress_of,
)
from cardbox_cli.pictures.page_elements import box, svg
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.listing import LINES, Behind, following, mark_of
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.templating import drawn, page
from cardbox_cli.serve.project import Project
from cardbox_cli.store.execution.batch_store import BatchFilter
from cardbox_cli.store.views.batch_views import BatchViews
from cardbox_cli.store.views.turn_views import FAMILY, TurnViews

routes = APIRouter(route_class=PageRoute)


@routes.get("/batches")
def batches(look: Looking, behind: Behind = None) -> HTMLResponse:
    """The newest batches."""
    with look.database.snapshot():
        views = BatchViews(look.database, look.project_id)
        found = list(views.newest(BatchFilter(behind=mark_of(behind)), limit=LINES + 1))
    older = following(found, "batch_id")
    return page(
        look,
        "batches.html",
        view="Batches",
        batches=found[:LINES],
        older=older and look.links.batches(behind=older),
    )


@routes.get("/batches/{batch_id:path}")
def batch(look: Looking, batch_id: str) -> HTMLResponse:
    """A batch, its children, and what these asked of others."""
    with look.database.snapshot():
        views = BatchViews(look.database, look.project_id)
        foreign = views.find_foreign(batch_id)
        if foreign is None:
            runtime = Runtime(look.database, look.project_id, settings=look.settings)
            known = {each.task_index: each for each in progress_of(runtime, batch_id).tasks}
            found = batch_view(runtime, runtime.batches.get(batch_id))
        else:
            known, found = {}, foreign_view(views, foreign)
        below = _below(look, [each.agent_turn_id for each in found.results if each.agent_turn_id])
    tasks = [_task(each, known.get(each.task_index), below) for each in found.results]
    return page(
        look,
        "batch.html",
        view="Batches",
        batch=found,
        tasks=tasks,
        ended=sum(each.status not in TASK_OPEN for each in found.results),
        bar=drawn(_bar(found)),
    )


def _task(result: Any, progress: TaskProgress | None, below: dict[str, list[Branch]]) -> dict[str, Any]:
    return {
        "task_index": result.task_index,
        "state": result.status if progress is None else progress.state,
        "steps": None if progress is None else progress.steps,
        "agent_id": None if progress is None else progress.agent_id,
        "agent_turn_id": result.agent_turn_id,
        "since": None if progress is None else progress.since,
        "output_box_id": result.output_box_id,
        "summary": result.summary,
        "error": result.error,
        "below": below.get(result.agent_turn_id or "", []),
    }


def _below(look: Project, turn_ids: Sequence[str]) -> dict[str, list[Branch]]:
    """The turns that each of these gave work to, as trees, by turn."""
    turns = TurnViews(look.database, look.project_id)
    first = next(iter(turns.get_many(turn_ids[:1])), None)
    if first is None:
        return {}
    family = turns.family(first)
    branches = tree([summary(each) for each in family]) if len(family) < FAMILY else []
    wanted = set(turn_ids)
    found: dict[str, list[Branch]] = {}
    while branches:
        found |= {each.agent_turn_id: each.children for each in branches if each.agent_turn_id in wanted}
        branches = [child for each in branches for child in each.children]
    return found


def _bar(batch: BatchView) -> Any:
    """How far a batch is: what has succeeded, what failed, what runs."""
    counts = {"done": 0, "fails": 0, "runs": 0}
    for each in batch.results:
        kind = "done" if each.status == "success" else "runs" if each.status == "dispatched" else "fails"
        counts[kind] += each.status != "pending"
    parts, x = [box(0, 0, 100, 3, "track", f"{batch.task_count} tasks")], 0.0
    for kind, number in counts.items():
        wide = 100 * number / (batch.task_count or 1)
        parts.append(box(x, 0, wide, 3, kind, f"{number} {_KINDS[kind]}"))
        x += wide
    told = ", ".join(f"{number} {_KINDS[kind]}" for kind, number in counts.items() if number) or "none begun"
    made = svg(f"Of {batch.task_count}: {told}", 100, 3, *parts)
    made.set("class", "bar")
    return made


_KINDS = {"done": "succeeded", "fails": "ended otherwise", "runs": "at work"}
