"""Commands that mend boxes and repeat turns, killed at every point: the new box or turn is whole, or is not."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from cardbox_cli.settings import TEST_FAULT
from tests.cli.conftest import succeed
from tests.crash.harness import Scene, Stage, explore
from tests.crash.test_commands import BOX, conversation
from tests.crash.test_turns import FILES, ask, execute, look, office

MakeStage = Callable[..., Stage]

TALK = {"talk.json": json.dumps(conversation("a", 3))}


def talk(scene: Scene, *, without_last: int = 0) -> None:
    """A box of a conversation, without so many of its last cards."""
    succeed(scene.run("card", "import", "talk.json"))
    execute(
        scene,
        "INSERT INTO card_boxes (tenant_id, box_id, card_ids) SELECT 'p', %s, "
        "jsonb_path_query_array(card_ids, format('$[0 to %%s]', jsonb_array_length(card_ids) - 1 - %s)::jsonpath) "
        "FROM card_boxes",
        BOX,
        without_last,
    )


def test_a_killed_repair_is_complete_or_absent(stage: MakeStage) -> None:
    broken = stage(files=TALK, prepare=partial(talk, without_last=1))
    points = explore(broken, "box", "repair", BOX, "--synthesize")
    assert {"insert_card:1", "insert_box:1"} <= set(points)


COMPRESS = ("box", "compress", BOX, "--summary", "It was done.", "--keep", "3")


@pytest.mark.parametrize(
    "words",
    [
        COMPRESS,
        pytest.param((*COMPRESS[:3], "--summary-cmd", "wc -l", "--keep", "3"), marks=pytest.mark.soak),
    ],
    ids=["given", "by a command"],
)
def test_a_killed_compression_is_complete_or_absent(words: tuple[str, ...], stage: MakeStage) -> None:
    points = explore(stage(files=TALK, prepare=talk), *words)
    assert {"insert_card:1", "insert_box:1"} <= set(points)


def test_a_killed_expansion_is_complete_or_absent(stage: MakeStage) -> None:
    def compressed(scene: Scene) -> None:
        talk(scene)
        short = succeed(scene.run(*COMPRESS, "-o", "id")).strip()
        execute(scene, "DELETE FROM card_boxes WHERE box_id = %s", BOX)
        execute(scene, "UPDATE card_boxes SET box_id = %s WHERE box_id = %s", BOX, short)

    assert "insert_box:1" in explore(stage(files=TALK, prepare=compressed), "box", "expand", BOX)


@pytest.mark.soak
def test_a_killed_pack_with_a_budget_is_complete_or_absent(stage: MakeStage) -> None:
    def prepare(scene: Scene) -> None:
        talk(scene)
        succeed(scene.run("profile", "import", "clerk.yaml"))

    asked = ("-a", "profile_name=clerk", "-a", "instruction=Go on", "-a", f"input_box_ids={BOX}")
    made = stage(files={**TALK, **FILES}, prepare=prepare)
    points = explore(made, "pack", "-H", "delegate", *asked, "--max-tokens", "60")
    assert "insert_box:1" in points


def test_a_killed_rebox_is_complete_or_absent(stage: MakeStage) -> None:
    other = "5e3f0c1a-0000-4000-8000-000000000002"

    def waiting(scene: Scene) -> None:
        office(scene)
        ask(scene)
        execute(scene, "INSERT INTO card_boxes (tenant_id, box_id, card_ids) VALUES ('p', %s, '[]')", other)

    made = stage(files=FILES, prepare=waiting)
    with made.scene() as scene:
        turn = str(look(scene, "SELECT agent_turn_id FROM cbx.turns"))
    why = ("--expect-epoch", "1", "--reason", "mended")
    points = explore(made, "turn", "rebox", turn, *why, "--context-box", other, "--output-box", other)
    assert {"point_head:1", "reset_output_start:1", "write_audit:1"} <= set(points)


def done(scene: Scene) -> None:
    """A turn of one step that came to its end."""
    office(scene)
    ask(scene)
    succeed(scene.run("worker", "run", "--target", "desk", "--exec", "echo Done.", "--drain"))


@pytest.mark.parametrize(
    "words",
    [("replay", "--times", "2", "--no-wait"), ("fork", "--at", "1", "--instruction", "Again.")],
    ids=["replay", "fork"],
)
def test_a_killed_replay_or_fork_creates_all_turns_or_none(words: tuple[str, ...], stage: MakeStage) -> None:
    """All of the turns are asked for, each with its agent and its box, or none."""
    made = stage(files=FILES, prepare=done)
    with made.scene() as scene:
        turn = str(look(scene, "SELECT agent_turn_id FROM cbx.turns"))
    verb, *options = words
    points = explore(made, "turn", verb, turn, *options)
    assert {"insert_box:1", "write_turn:1"} <= set(points)


@pytest.mark.parametrize("words", [("replay", "--times", "2"), ("fork", "--at", "1")], ids=["replay", "fork"])
def test_an_interrupted_replay_or_fork_stops_its_turns(words: tuple[str, ...], stage: MakeStage) -> None:
    """No other worker has the target of these turns."""
    with stage(files=FILES, prepare=done).scene() as scene:
        turn = str(look(scene, "SELECT agent_turn_id FROM cbx.turns"))
        verb, *options = words
        run = ("turn", verb, turn, *options, "--exec", "sleep 60")
        ended = scene.run(*run, **{TEST_FAULT.name: "SIGINT:begin_step:1"})
        assert ended.code == 130, ended
        assert "stopped" in ended.err
        ends = "SELECT string_agg(DISTINCT coalesce(end_status, '-'), ' ') FROM cbx.turns"
        assert look(scene, ends) == "canceled success"
