"""Chats, killed at every point: the transcript is complete, contexts hold whole rounds, nothing is archived twice."""

from collections.abc import Callable

import pytest

from tests.chat.layout import trees
from tests.cli.conftest import succeed
from tests.crash.harness import Connection, Scene, Stage, explore, value

MakeStage = Callable[..., Stage]

KEY = "telegram-chat-42"
ANSWER = ("chat", "run", KEY, "--exec", "sh model.sh", "--max-steps", "5")
# The first call of the model begins a new context, the second one answers, once it has sent something itself.
MODEL = """
if [ -e called ]; then
    rm called
    echo answered
else
    touch called
    echo '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
        "function":{"name":"chat_context_new","arguments":"{}"}}]}'
fi
"""
# What is in a transcript and in contexts: a line for each card, by the place that has it.
CARDS = """
SELECT b.kind, coalesce(c.metadata ->> 'role', 'gone'), c.content ->> 'text'
FROM (
    SELECT 'transcript' AS kind, h.transcript_box_id AS box_id FROM cbx.chats AS h
    UNION ALL SELECT 'context', h.context_box_id FROM cbx.chats AS h
    UNION ALL SELECT 'archive ' || coalesce(a.title, ''), a.box_id FROM cbx.chat_contexts AS a
) AS b
JOIN public.card_boxes AS box ON box.box_id = b.box_id
CROSS JOIN LATERAL jsonb_array_elements_text(box.card_ids) WITH ORDINALITY AS slot (card_id, place)
LEFT JOIN public.cards AS c ON c.card_id = slot.card_id
ORDER BY b.kind, slot.place
"""


def held(connection: Connection) -> list[str]:
    return [": ".join(row) for row in connection.execute(CARDS).fetchall()]


def a_context(scene: Scene) -> None:
    """A chat with one archived context, an active one, and an unanswered message."""
    for text in ("a", "c"):
        succeed(scene.run("chat", "run", KEY, "--text", text, "--exec", "echo b", "--answers", "text"))
        if text == "a":
            succeed(scene.run("chat", "new", KEY, "--title", "first"))
    succeed(scene.run("chat", "send", KEY, "e"))


@pytest.mark.parametrize(
    "words",
    [
        ("send", KEY, "f", "--message-id", "7"),
        ("reply", KEY, "f"),
        ("new", KEY, "--title", "second"),
        ("load", KEY, "--query", "first"),
    ],
    ids=lambda words: words[0],
)
def test_a_killed_chat_command_is_complete_or_absent(words: tuple[str, ...], stage: MakeStage) -> None:
    explore(stage(prepare=a_context), "chat", *words, state=held)


def a_folder(scene: Scene) -> None:
    """The files of a chat, and some of it in the database already."""
    tree = {
        "conversations/history.jsonl": [trees.line(1, "a")],
        "contexts/active.jsonl": [trees.message(1, "a")],
    }
    trees.write(scene.folder, tree)
    succeed(scene.run("chat", "import", "."))
    tree["conversations/history.jsonl"].append(trees.line(2, "b", "assistant"))
    tree["contexts/active.jsonl"].append(trees.message(2, "b", "assistant"))
    trees.write(scene.folder, {**tree, "contexts/archive/ctx_1a.json": trees.FIRST})


def test_a_killed_chat_import_is_complete_or_absent(stage: MakeStage) -> None:
    points = explore(stage(prepare=a_folder), "chat", "import", ".", state=held)
    assert {"insert_chat_context:1", "write_chat:1", "commit:1"} <= set(points)


def whole(connection: Connection) -> None:
    """Raise unless contexts are made of whole rounds and what was said is there; let the lease of a run end."""
    found = held(connection)
    for kind in ("context", "archive first", "archive "):
        roles = [line.split(": ")[1] for line in found if line.startswith(f"{kind}:")]
        assert roles == ["user", "assistant"] * (len(roles) // 2), found
    said = [line for line in found if line.startswith("transcript:")]
    assert said[:5] == [
        f"transcript: {each}" for each in ("user: a", "assistant: b", "user: c", "assistant: b", "user: e")
    ]
    archived = value(connection, "SELECT count(*) - count(DISTINCT box_id) FROM cbx.chat_contexts")
    assert archived == 0
    connection.execute("UPDATE cbx.chats SET lease_expires_at = now() - interval '1 second'")


def explore_runs(stage: Stage, choose: Callable[[list[str]], list[str]]) -> list[str]:
    """Kill a run at the points that are chosen, and run the chat again: once answered, and what it has is whole."""
    with stage.scene() as scene:
        result, points = scene.points(*ANSWER)
        assert result.code == 0, result.err
        with scene.connection() as connection:
            once = held(connection)
    chosen = choose(points)
    for point in chosen:
        with stage.scene() as scene:
            (scene.folder / "called").unlink(missing_ok=True)
            killed = scene.strike(point, *ANSWER)
            with scene.connection() as connection:
                whole(connection)
            (scene.folder / "called").unlink(missing_ok=True)
            again = scene.run(*ANSWER)
            assert again.code == 0 or (killed and "no unanswered message" in again.err), again
            with scene.connection() as connection:
                assert held(connection) == once, point
    return chosen


class TestRun:
    def test_a_run_survives_a_kill_at_some_commits(self, stage: MakeStage) -> None:
        made = stage(files={"model.sh": MODEL}, prepare=a_context)
        points = explore_runs(made, lambda points: [each for each in points if "commit" in each][1::3])
        assert len(points) > 3

    @pytest.mark.soak
    def test_a_run_survives_a_kill_at_every_point(self, stage: MakeStage) -> None:
        made = stage(files={"model.sh": MODEL}, prepare=a_context)
        explore_runs(made, lambda points: points)
