"""The lint on what the model of a turn is asked in its next step, before anybody asks.

Owns how the boxes of a turn that is not run yet are read for it. Decides nothing about the turn.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.execution.requests.project_layers import collector_for, settled
from cardbox_cli.execution.requests.request import Source, TurnBoxes, present_cards, turn_request
from cardbox_cli.execution.requests.source import known_tools
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.providers.registry import provider_for, provider_named
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore


def lint_turn(
    database: Database, project_id: str, boxes: TurnBoxes, runtime_config: Mapping[str, Any]
) -> list[LintFinding]:
    """What the provider of the turn's model would refuse, or a model stumble on, in its next request.

    The model is that of the `runtime_config`, else the profile's. Reads the project's tools and settings, and
    what the profile's layers are made of.
    """
    wanted = runtime_config.get("model")
    model = wanted if isinstance(wanted, str) else None
    provider = provider_for(boxes.entries, model)
    profile = profile_of(present_cards(boxes.profile.slots))
    tools = known_tools(database, project_id, profile, present_cards(boxes.context.slots))
    settings = ProjectsStore(database).settings(project_id)
    options = settled(ComposeOptions(model=model), settings)
    collector = collector_for(database, project_id, boxes.context.box_id, settings=settings)
    asked = turn_request(boxes, tools, options, format=provider, collector=collector)
    return lint(asked.entries, asked.request, provider_named(provider))


def lint_turn_to_be(
    runtime: Runtime,
    head: Head | None,
    runtime_config: Mapping[str, Any],
    *,
    profile: Source,
    context: Source,
    output: Source,
) -> list[LintFinding]:
    """`lint_turn` of the first request of a turn that is asked for, of the agent with this head.

    A context box that is only planned, or packed in this transaction, has no id yet.
    """
    written = output.slots[: _output_start(runtime, head, output.box_id)]
    boxes = TurnBoxes(
        profile=profile,
        context=context,
        output=msgspec.structs.replace(output, slots=written),
        output_start=len(written),
    )
    return lint_turn(runtime.database, runtime.project_id, boxes, runtime_config)


def _output_start(runtime: Runtime, head: Head | None, output_box_id: str) -> int | None:
    """How many cards the output box held before the turn that writes to it now; None where none does."""
    if head is None or head.active_agent_turn_id is None or head.output_box_id != output_box_id:
        return None
    record = runtime.turns.record(head.active_agent_turn_id)
    return None if record is None else record.output_start
