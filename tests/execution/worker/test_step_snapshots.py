"""What steps keep of their requests, told by runs of real commands: shown again, and proven by the cards."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.context.request import DEFAULT_OPTIONS, ComposeOptions
from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.execution.requests.recorded_requests import StepRequest, TurnRequests
from cardbox_cli.execution.requests.step_snapshots import Verification, read_snapshot
from cardbox_cli.execution.requests.turn_requests import apply_share_default, collector_for
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.layers import LayerRequest as Layers
from cardbox_cli.model.layers import Layout
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.providers.formats import format_names, sent
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turn_views import TurnViews
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked
from tests.execution.worker.test_runner import LOOKS

Run = Callable[..., RunOutcome]
NOTES = "notes__context"
KEPT = {
    "format": "openai",
    "model": None,
    "process": "react",
    "layout": "default",
    "output_start": 0,
    "output_cards": 0,
    "layers": {},
    "sha256": "",
}


class Turn:
    """A turn that ran twice, a tool called between; `bodies` are what its command got."""

    def __init__(self, runtime: Runtime, turn_id: str, folder: Path) -> None:
        self.runtime = runtime
        self.turn_id = turn_id
        self.bodies = [path.read_bytes() for path in sorted(folder.glob("body-*"))]

    @property
    def requests(self) -> TurnRequests:
        database = self.runtime.database
        turn = TurnViews(database, PROJECT).get(self.turn_id)
        return TurnRequests(database, PROJECT, turn, HANDLERS)

    def shown(self, at: str | None = None, *, format: str | None = None, **options: Any) -> StepRequest:
        database = self.runtime.database
        asked = apply_share_default(ComposeOptions(**options), ProjectsStore(database).settings(PROJECT))
        with database.snapshot():
            return self.requests.request(at, asked, format, collector_for(database, PROJECT))

    def body(self, at: str | None = None, **options: Any) -> bytes:
        found = self.shown(at, **options)
        return sent(found.request, found.format)

    def verified(self, at: str, **options: Any) -> Verification:
        with self.runtime.database.snapshot():
            return self.requests.verify(at, ComposeOptions(**options), None)[1]


@pytest.fixture
def ran(runtime: Runtime, ask: Asked, run: Run, tmp_path: Path) -> Callable[..., Turn]:
    """Run a turn whose model looks and then answers, with a profile of these keys."""

    def go(
        *, format: str = "openai", options: ComposeOptions = DEFAULT_OPTIONS, model: str = LOOKS, **keys: Any
    ) -> Turn:
        profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": ["look"]}
        entry = ProfileStore(runtime.database, PROJECT).save(
            {**profile, "system_prompt": "You are a clerk.", **keys}, author_id="t"
        )
        runtime.database.connection.execute(
            "UPDATE resource.project_agents SET profile_box_id = %s", [entry.profile_box_id]
        )
        tool = Tool(
            tool_name="look",
            description="Looks at the sky, or where it is told to.",
            parameters={"type": "object", "required": ["at"], "properties": {"at": {"type": "string"}}},
            target_subject=None,
            after_execution=None,
            options={"exec": "cat"},
        )
        ToolStore(runtime.database, PROJECT).add(tool, actor="t")
        turn = ask(runtime_config={"model": "gpt-x"})
        rest = run(f"tee {tmp_path}/body-$CBX_STEP | {model}", format=format, options=options)
        assert rest.message == "success"
        return Turn(runtime, turn.agent_turn_id or "", tmp_path)

    return go


# A model for any format: it answers at once.
ANSWERS = "{ cat > /dev/null; printf done; }"


class TestShowing:
    def test_the_next_request_is_shown_exactly_as_the_worker_sends_it(
        self, runtime: Runtime, ask: Asked, run: Run, tmp_path: Path
    ) -> None:
        turn_id = ask().agent_turn_id or ""
        composed = Turn(runtime, turn_id, tmp_path)
        bodies = {format: composed.body(format=format) for format in format_names()}
        assert composed.shown().notes == ["as cbx would compose it"]
        run(f"tee {tmp_path}/body | {ANSWERS}")
        assert (tmp_path / "body").read_bytes() == bodies["openai"]
        for format in format_names():
            turn_id = ask().agent_turn_id or ""
            run(f"tee {tmp_path}/body | {ANSWERS}", format=format)
            assert (tmp_path / "body").read_bytes() == bodies[format]

    def test_a_request_from_a_snapshot_is_shown_exactly_as_it_was_sent(
        self, ran: Callable[..., Turn]
    ) -> None:
        turn = ran(llm_config={"temperature": 0.1}, layers={"framework__context": "Rules."})
        assert [turn.body(at) for at in ("1", "2")] == turn.bodies
        assert turn.body() == turn.bodies[1]
        first, second = (turn.shown(at) for at in ("1", "2"))
        assert json.loads(turn.bodies[0])["model"] == "gpt-x"
        assert (first.notes, second.notes) == ([], [])
        rules = [second.request.places[each.card_id].rule for each in second.request.messages if each.card_id]
        assert rules == [None, None, "output", "output"]

    @pytest.mark.parametrize("format", ["anthropic", "text"])
    def test_a_request_is_shown_in_the_format_in_which_it_was_sent(
        self, ran: Callable[..., Turn], format: str
    ) -> None:
        turn = ran(format=format, model=ANSWERS)
        assert turn.body() == turn.bodies[0]
        assert json.loads(turn.body(format="openai"))["messages"][0]["role"] == "system"
        assert turn.verified("1").equal

    def test_the_request_box_of_a_process_without_history_has_no_history(
        self, runtime: Runtime, ran: Callable[..., Turn], context_box: str
    ) -> None:
        said = runtime.cards.add(draft_card("chat.message", "By the way.")).card.card_id
        runtime.boxes.append(context_box, [said])
        turn = ran(process="mapreduce_worker")
        assert [turn.body(at) for at in ("1", "2")] == turn.bodies
        assert b"Find the cause." in turn.bodies[0]
        assert b"By the way." not in turn.bodies[0]
        assert turn.verified("2").equal

    def test_a_temporary_layer_that_is_left_out_is_named(self, ran: Callable[..., Turn]) -> None:
        options = ComposeOptions(asked=Layers(texts={NOTES: "Notes."}))
        turn = ran(options=options)
        assert turn.shown("1").notes == [
            f"the layer {NOTES} is left out: it existed only for the call, and only the hash of its text is stored"
        ]
        assert b"Notes." not in turn.body("1")
        assert turn.body("1", asked=Layers(texts={NOTES: "Notes."})) == turn.bodies[0]
        others = turn.shown("1", asked=Layers(texts={NOTES: "Others."}))
        assert sent(others.request, others.format) == turn.body("1")
        assert others.notes == [
            f"the layer {NOTES} is left out: the text passed for it is not the one that was sent"
        ]

    def test_a_stored_layer_is_shown_unchanged(self, runtime: Runtime, ran: Callable[..., Turn]) -> None:
        ProjectsStore(runtime.database).configure(PROJECT, reproducible_layers=[NOTES])
        turn = ran(options=ComposeOptions(asked=Layers(texts={NOTES: "Notes."})))
        assert [turn.body(at) for at in ("1", "2")] == turn.bodies
        assert turn.verified("2").equal

    def test_a_missing_profile_box_is_reported(self, runtime: Runtime, ran: Callable[..., Turn]) -> None:
        turn = ran()
        runtime.database.connection.execute(
            "DELETE FROM public.card_boxes WHERE box_id IN (SELECT profile_box_id FROM state.agent_steps)"
        )
        assert turn.shown("1").notes == [
            "the profile box is gone, so the parameters of the request are unknown"
        ]
        assert turn.body("1") == turn.bodies[0]


def test_a_step_stores_hashes_and_no_texts(ran: Callable[..., Turn], runtime: Runtime) -> None:
    turn = ran(options=ComposeOptions(asked=Layers(texts={NOTES: "Notes."})))
    kept = [step.metadata["request"] for step in runtime.turns.steps(turn.turn_id)]
    assert kept[1] == {
        "format": "openai",
        "model": "gpt-x",
        "process": "react",
        "layout": "default",
        "output_start": 0,
        "output_cards": 3,
        "layers": {NOTES: hashlib.sha256(b"Notes.").hexdigest()},
        "sha256": hashlib.sha256(turn.bodies[1]).hexdigest(),
        # What is shown of a step without its text is the body without its layer.
        "rest_sha256": hashlib.sha256(turn.body("2")).hexdigest(),
    }


def test_the_two_hashes_of_a_request_without_layers_are_equal(
    ran: Callable[..., Turn], runtime: Runtime
) -> None:
    turn = ran()
    kept = runtime.turns.steps(turn.turn_id)[0].metadata["request"]
    assert kept["rest_sha256"] == kept["sha256"]


@pytest.mark.parametrize(
    "metadata", [None, [], {}, {"request": 1}, {"request": {}}, {"request": {**KEPT, "format": "smoke"}}]
)
def test_foreign_step_metadata_is_ignored(metadata: Any) -> None:
    assert read_snapshot(metadata) is None
    assert read_snapshot({"request": KEPT}) is not None


class TestNamingAStep:
    def test_a_step_is_found_by_its_number_by_part_of_its_id_or_as_next(
        self, ran: Callable[..., Turn], runtime: Runtime
    ) -> None:
        turn = ran()
        ids = [step.step_id for step in runtime.turns.steps(turn.turn_id)]
        for at, place in (("1", 0), (ids[1], 1), (ids[1][-8:], 1), (ids[0].removeprefix("step_"), 0)):
            assert turn.body(at) == turn.bodies[place]
        assert turn.shown("next").step is None
        with pytest.raises(AmbiguousId, match=f"'step' is ambiguous; it matches 2 steps: {ids[0]}, {ids[1]}"):
            turn.shown("step")
        for unknown in ("3", "0", "abc", "nope-nope"):
            with pytest.raises(NotFound, match=f"turn '{turn.turn_id}' has no step '{unknown}'"):
                turn.shown(unknown)

    def test_a_full_step_id_takes_precedence_over_a_prefix(
        self, ran: Callable[..., Turn], runtime: Runtime
    ) -> None:
        turn = ran()
        ids = [step.step_id for step in runtime.turns.steps(turn.turn_id)]
        runtime.database.connection.execute(
            "UPDATE state.agent_steps SET step_id = CASE step_id WHEN %s THEN 'step_7' ELSE 'step_77' END",
            ids[:1],
        )
        assert turn.body("step_7") == turn.bodies[0]

    def test_a_step_without_a_stored_request_is_refused(
        self, runtime: Runtime, ran: Callable[..., Turn], ask: Asked
    ) -> None:
        turn = ran()
        runtime.database.connection.execute("UPDATE state.agent_steps SET request_box_id = NULL")
        with pytest.raises(NotFound, match=r"step 'step_\w+' has no snapshot of a request"):
            turn.shown("1")
        assert turn.shown().step is None
        waiting = Turn(runtime, ask().agent_turn_id or "", Path("nowhere"))
        with pytest.raises(NotFound, match="has no snapshot of a request"):
            waiting.requests.verify(None, ComposeOptions(), None)


class TestVerifying:
    def test_an_unchanged_request_is_verified_exactly(self, ran: Callable[..., Turn]) -> None:
        turn = ran(layers={"framework__context": "Rules."}, layout="cache", llm_config={"top_p": 1})
        for at in ("1", "2"):
            found = turn.verified(at)
            assert (found.equal, found.compared_by, found.lost, found.reasons) == (True, "sha256", [], [])

    def test_later_cards_do_not_affect_verification(
        self, runtime: Runtime, ran: Callable[..., Turn], ask: Asked, run: Run
    ) -> None:
        turn = ran()
        output = runtime.turns.steps(turn.turn_id)[0].output_box_id
        ask(output_box_id=output)
        assert run(ANSWERS).message == "success"
        assert turn.verified("1").equal
        assert turn.verified("2").equal

    def test_the_report_names_a_deleted_card(
        self, runtime: Runtime, ran: Callable[..., Turn], context_box: str
    ) -> None:
        turn = ran()
        [slot] = runtime.boxes.slots(context_box)
        runtime.cards.delete([slot.card_id])
        found = turn.verified("1")
        assert not found.equal
        assert found.reasons == [f"card {slot.card_id[-8:]} at position 2 of the request box is deleted"]

    def test_verification_by_hash_does_not_need_the_snapshot_cards(
        self, runtime: Runtime, ran: Callable[..., Turn]
    ) -> None:
        turn = ran()
        box_id = runtime.turns.steps(turn.turn_id)[0].request_box_id or ""
        runtime.cards.delete([runtime.boxes.slots(box_id)[0].card_id])
        found = turn.verified("1")
        assert (found.equal, found.difference.equal, found.difference.kept.messages) == (True, True, 2)

    def test_an_overwritten_card_is_detected(
        self, runtime: Runtime, ran: Callable[..., Turn], context_box: str
    ) -> None:
        turn = ran()
        [slot] = runtime.boxes.slots(context_box)
        runtime.cards.add(draft_card("task.instruction", "Lies.", card_id=slot.card_id), repair=True)
        found = turn.verified("1")
        assert (found.equal, found.difference.equal) == (False, True)
        assert found.reasons == [
            "the messages match the request box but not the sent request: a card was overwritten, or the "
            "profile changed"
        ]

    def test_a_changed_system_prompt_is_the_first_difference(
        self, runtime: Runtime, ran: Callable[..., Turn]
    ) -> None:
        turn = ran()
        runtime.database.connection.execute(
            "UPDATE public.cards SET content = jsonb_set(content, '{data,system_prompt}', '\"Be rude.\"')"
            " WHERE metadata ->> 'type' = 'sys.profile'"
        )
        found = turn.verified("1")
        assert found.difference.difference is not None
        stored, composed = found.difference.difference.a, found.difference.difference.b
        assert stored is not None
        assert composed is not None
        assert (stored.number, stored.layer, stored.text) == (1, "system_prompt", "You are a clerk.")
        assert (composed.layer, composed.text) == ("system_prompt", "Be rude.")
        assert found.reasons == ["the profile has another system prompt now, or another program rendered it"]

    def test_the_rest_is_compared_if_a_temporary_layer_is_missing(self, ran: Callable[..., Turn]) -> None:
        turn = ran(options=ComposeOptions(asked=Layers(texts={NOTES: "Notes."})))
        found = turn.verified("2")
        assert (found.equal, found.compared_by, found.lost) == (True, "rest_sha256", [NOTES])
        assert found.difference.kept.messages == 4
        again = turn.verified("2", asked=Layers(texts={NOTES: "Notes."}))
        assert (again.equal, again.compared_by, again.lost) == (True, "sha256", [])

    @pytest.mark.parametrize("format", format_names())
    @pytest.mark.parametrize("layout", ["default", "cache"])
    def test_the_rest_is_verified_in_every_format(
        self, ran: Callable[..., Turn], format: str, layout: Layout
    ) -> None:
        asked = Layers(texts={NOTES: "Notes.", "todo__context": "Do."})
        turn = ran(format=format, model=ANSWERS, options=ComposeOptions(layout=layout, asked=asked))
        for given, lost in (({}, ["todo__context", NOTES]), ({NOTES: "Notes."}, ["todo__context"])):
            found = turn.verified("1", asked=Layers(texts=given))
            assert (found.equal, found.compared_by, found.lost) == (True, "rest_sha256", lost)

    def test_an_overwritten_card_is_detected_despite_a_missing_layer(
        self, runtime: Runtime, ran: Callable[..., Turn], context_box: str
    ) -> None:
        turn = ran(options=ComposeOptions(asked=Layers(texts={NOTES: "Notes."})))
        [slot] = runtime.boxes.slots(context_box)
        runtime.cards.add(draft_card("task.instruction", "GO", card_id=slot.card_id), repair=True)
        found = turn.verified("1")
        assert (found.equal, found.compared_by, found.lost) == (False, "rest_sha256", [NOTES])
        assert found.reasons == [
            "the messages match the request box but not the sent request: a card was overwritten, or the "
            "profile changed"
        ]

    def test_only_the_messages_are_compared_without_a_hash_of_the_rest(
        self, runtime: Runtime, ran: Callable[..., Turn], context_box: str
    ) -> None:
        turn = ran(options=ComposeOptions(asked=Layers(texts={NOTES: "Notes."})))
        runtime.database.connection.execute(
            "UPDATE state.agent_steps SET metadata = metadata #- '{request,rest_sha256}'"
        )
        found = turn.verified("1")
        assert (found.equal, found.compared_by, found.lost) == (True, "messages", [NOTES])
        [slot] = runtime.boxes.slots(context_box)
        runtime.cards.delete([slot.card_id])
        found = turn.verified("1")
        assert (found.equal, found.compared_by) == (False, "messages")
        assert found.reasons == [f"card {slot.card_id[-8:]} at position 2 of the request box is deleted"]
        whole = turn.verified("1", asked=Layers(texts={NOTES: "Notes."}))
        assert (whole.equal, whole.compared_by) == (False, "sha256")

    def test_a_layer_with_a_changed_text_is_a_difference(self, ran: Callable[..., Turn]) -> None:
        turn = ran(layers={NOTES: "Notes."})
        found = turn.verified("1", asked=Layers(texts={NOTES: "Other notes."}))
        assert (found.equal, found.lost) == (False, [])
        assert found.reasons == [f"the text passed for the layer {NOTES} is not the one that was sent"]
        turn.runtime.database.connection.execute(
            "UPDATE public.cards SET content = jsonb_set(content, '{data,layers,notes__context}', '\"More.\"')"
            " WHERE metadata ->> 'type' = 'sys.profile'"
        )
        assert turn.verified("1").reasons == [f"the layer {NOTES} has another text now"]

    def test_a_step_without_hashes_is_compared_with_its_request_box(
        self, runtime: Runtime, ran: Callable[..., Turn]
    ) -> None:
        turn = ran()
        runtime.database.connection.execute("UPDATE state.agent_steps SET metadata = '{}'")
        for at in ("1", "2"):
            found = turn.verified(at)
            assert (found.equal, found.compared_by) == (True, "messages")


def _instruction(runtime: Runtime, text: str) -> str:
    card = draft_card("task.instruction", text)
    runtime.cards.add(card)
    return card.card_id
