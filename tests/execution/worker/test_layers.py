"""The layers of a turn's requests: what the profile and the project ask for, and what is kept of them."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import card_text, draft_card
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.layers import LayerRequest as Layers
from cardbox_cli.model.todo import new_item
from cardbox_cli.packing.pack import Packing
from cardbox_cli.packing.recipe_files import parse_recipe
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked

Saw = Callable[..., list[str]]

SUM = """
context_packing_config:
  pack_arguments:
    - arg_key: task
    - {arg_key: fields, as_card_type: task.result_fields, card_metadata: {role: system}}
  inherit_context: {include_boxes_from_args: [docs], include_parent: true}
"""
LAYERS = {
    "framework__context": "Answer in one line.",
    "experience__context": True,
    "knowledge__context": {"query": "stopcock"},
}


@pytest.fixture
def profile(runtime: Runtime) -> Callable[..., None]:
    """Give the agents a profile of the same name that says more."""

    def save(**keys: Any) -> None:
        said = {"name": "clerk", "worker_target": "worker_generic", "tags": [], **keys}
        entry = ProfileStore(runtime.database, PROJECT).save(said, author_id="t")
        runtime.database.connection.execute(
            "UPDATE resource.project_agents SET profile_box_id = %s", [entry.profile_box_id]
        )

    return save


@pytest.fixture
def saw(ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path) -> Saw:
    """Ask for a turn and run it; the texts that its model saw."""

    def messages(**options: Any) -> list[str]:
        ask()
        assert (
            run(f"cat > {tmp_path}/request; printf done", options=ComposeOptions(**options)).message
            == "success"
        )
        return [message["content"] for message in json.loads((tmp_path / "request").read_text())["messages"]]

    return messages


def kept(runtime: Runtime) -> list[str]:
    """What the request box of the one step holds."""
    found = runtime.database.connection.execute("SELECT request_box_id::text FROM state.agent_steps")
    [[box_id]] = found.fetchall()
    return [card_text(slot.card.content) for slot in runtime.boxes.slots(box_id) if slot.card]


def test_the_layers_of_a_profile_are_in_the_request(
    runtime: Runtime, profile: Callable[..., None], saw: Saw
) -> None:
    for project_id, text in (
        (PROJECT, "The stopcock is below the sink."),
        ("other", "A stopcock elsewhere."),
    ):
        CardStore(runtime.database, project_id).add(draft_card("task.instruction", text))
    profile(layers=LAYERS)
    first = saw()
    assert first[0] == "Answer in one line."
    assert ["below the sink" in text for text in first[1:]] == [True, False]
    assert not any("elsewhere" in text for text in first)
    again = saw()
    assert [text.splitlines()[-1] for text in again[:2]] == ["Answer in one line.", "[1] done"]
    assert again[-1] == "Find the cause."


def test_the_worker_overrides_the_sharing_setting_of_the_project(
    runtime: Runtime, profile: Callable[..., None], saw: Saw
) -> None:
    profile(layers={"framework__context": "Rules.", "notes__context": "Notes."})
    task = "Find the cause."
    assert saw() == ["Rules.", "Notes.", task]
    ProjectsStore(runtime.database).configure(PROJECT, enable_share_context=False)
    assert saw() == ["Rules.", task]
    assert saw(share=True) == ["Rules.", "Notes.", task]
    assert saw(asked=Layers(to_collect=frozenset({"notes__context"}))) == ["Rules.", "Notes.", task]
    assert saw(asked=Layers(texts={"notes__context": "Mine."})) == ["Rules.", "Mine.", task]


def test_only_reproducible_layers_are_stored(
    runtime: Runtime, profile: Callable[..., None], saw: Saw
) -> None:
    profile(layers={"a__context": "A.", "b__context": "B."})
    ProjectsStore(runtime.database).configure(PROJECT, reproducible_layers=["b__context"])
    assert saw() == ["A.", "B.", "Find the cause."]
    assert kept(runtime) == ["B.", "Find the cause."]


def test_a_process_without_history_sees_packed_cards_and_no_conversation(
    runtime: Runtime, ask: Asked, profile: Callable[..., None], run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    profile(process="mapreduce_worker")

    def written(*cards: tuple[str, str]) -> list[str]:
        drafts = [draft_card(card_type, text) for card_type, text in cards]
        return [runtime.cards.add(draft).card.card_id for draft in drafts]

    def asked(context: str, **options: Any) -> list[str]:
        ask(context_box_id=context, **options)
        assert run(f"cat > {tmp_path}/request; printf done").message == "success"
        return [each["content"] for each in json.loads((tmp_path / "request").read_text())["messages"]]

    chat = ("chat.message", "A document."), ("agent.thought", "A thought."), ("tool.result", "A result.")
    handed = (
        ("task.instruction", "Sum up."),
        ("task.deliverable", "A part."),
        ("task.instruction", "All of it."),
    )
    by_hand = runtime.boxes.create(written(*chat, *handed)).box_id
    before = runtime.boxes.create(written(("task.instruction", "Long ago."), ("task.deliverable", "Done.")))
    assert asked(by_hand, output_box_id=before.box_id) == [text for _, text in handed]
    # What is left out is told before anybody is asked.
    told: list[LintFinding] = []
    recipe = parse_recipe(SUM, "sum.yaml")
    arguments = {
        "profile_name": "clerk",
        "task": "Sum up.",
        "fields": [{"name": "sum", "description": "in one line"}],
        "docs": runtime.boxes.create(written(*chat[:1])).box_id,
    }
    packed = Packing(runtime.database, PROJECT, recipe, "sum", arguments).pack(check=told.extend)
    said = asked(packed.context_box_id or "")
    assert [said[0], said[1].splitlines()[-1], *said[2:]] == [
        "Sum up.",
        "- sum: in one line",
        "A document.",
        '{"parent_agent_id":"sys.operator"}',
    ]
    assert "history-left-out" not in [each.rule for each in told]
    request = DispatchRequest(target_agent_id="clerk", context_box_id=by_hand, output_box_id=before.box_id)
    dispatch(runtime, request, dry_run=True, check=told.extend)
    # The earlier output, which has grown by the thought and the deliverable of the first turn; then the chat.
    left = [each for each in told if each.rule == "history-left-out"]
    assert [(each.severity, each.box_id, each.position) for each in left] == [
        *(("warning", before.box_id, position) for position in range(4)),
        *(("warning", by_hand, position) for position in range(3)),
    ]


@pytest.mark.parametrize("process", ["mapreduce_worker", "mapreduce_planner", "mapreduce_reducer"])
def test_every_process_without_history_sees_only_its_input_and_own_output(
    runtime: Runtime,
    profile: Callable[..., None],
    run: Callable[..., RunOutcome],
    ask: Asked,
    tmp_path: Path,
    process: str,
) -> None:
    profile(process=process, allowed_tools=["join"], system_prompt="Reduce.")
    add_tool(runtime, "join", "echo all of it")
    drafts = [
        draft_card("chat.message", "A document."),
        draft_card("context.compression", "What was before."),
        new_item("Ask Ada.", author_id="t"),
    ]
    docs = runtime.boxes.create([runtime.cards.add(each).card.card_id for each in drafts]).box_id
    arguments = {
        "profile_name": "clerk",
        "task": "Sum up.",
        "fields": [{"name": "sum", "description": ""}],
        "docs": docs,
    }
    recipe = parse_recipe(SUM, "sum.yaml")
    packed = Packing(runtime.database, PROJECT, recipe, "sum", arguments).pack()
    # A copy, as one makes to change it, is the same input.
    copy = runtime.boxes.fork(packed.context_box_id or "").box_id
    earlier = runtime.boxes.create(
        [runtime.cards.add(draft_card("task.deliverable", "An earlier answer.")).card.card_id]
    ).box_id
    ask(context_box_id=copy, output_box_id=earlier)
    call = {"id": "c1", "type": "function", "function": {"name": "join", "arguments": "{}"}}
    asks = json.dumps({"role": "assistant", "content": "I join.", "tool_calls": [call]})
    command = f"cat >> {tmp_path}/asked; echo >> {tmp_path}/asked; grep -q 'all of it' {tmp_path}/asked && echo done"
    assert run(f"{command} || printf %s {shlex.quote(asks)}").message == "success"
    bodies = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines() if line]
    texts = [[each["content"] for each in body["messages"]] for body in bodies]
    given = [
        "Reduce.",
        "Sum up.",
        "The result must contain these fields:\n- sum",
        "A document.",
        '{"parent_agent_id":"sys.operator"}',
    ]
    assert texts == [given, [*given, "I join.", "all of it"]]
    # Whatever is left out is a warning, before anybody is asked.
    told: list[LintFinding] = []
    request = DispatchRequest(target_agent_id="clerk", context_box_id=copy, output_box_id=earlier)
    dispatch(runtime, request, dry_run=True, check=told.extend)
    left = [(each.box_id, each.position, each.message) for each in told if each.rule == "history-left-out"]
    assert left[0] == (earlier, 0, f"is left out: history, and a {process} takes none")
    assert [message for box_id, _, message in left if box_id == copy] == [
        f"is left out: a {process} cannot have the layer {layer}__context"
        for layer in ("compression", "todo")
    ]


def add_tool(runtime: Runtime, name: str, command: str) -> None:
    made = Tool(
        tool_name=name,
        description=None,
        parameters={"type": "object"},
        target_subject=None,
        after_execution=None,
        options={"exec": command},
    )
    ToolStore(runtime.database, PROJECT).add(made, actor="t")


def test_a_layer_that_the_process_does_not_support_fails_the_turn(
    ask: Asked, profile: Callable[..., None], run: Callable[..., RunOutcome]
) -> None:
    profile(process="mapreduce_worker")
    ask()
    rest = run("printf done", options=ComposeOptions(asked=Layers(texts={"todo__context": "x"})))
    assert (rest.kind, rest.error_code) == ("ended", "invalid_layers")
    assert "mapreduce_worker cannot have the requested layer" in rest.message


def test_a_request_that_cannot_be_stored_fails_the_turn(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome]
) -> None:
    ProjectsStore(runtime.database).configure(PROJECT, reproducible_layers=["notes__context"])
    ask()
    rest = run("printf done", options=ComposeOptions(asked=Layers(texts={"notes__context": "a\0b"})))
    assert (rest.kind, rest.error_code) == ("ended", "invalid_request")
    assert rest.message.startswith("the request cannot be stored: ")
