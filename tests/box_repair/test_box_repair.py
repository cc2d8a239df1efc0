"""`cbx box repair`, `compress` and `expand`: new boxes, and everything that was there stays."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.model.cards import CardDraft, card_text, draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from tests.conftest import Cbx

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKED = draft_card("task.instruction", "How late is it?")
CALLED = draft_card("agent.thought", "Let me look.", tool_calls=[CALL])
ANSWERED = draft_card("tool.result", "nine", tool_call_id="c1")
AGAIN = draft_card("task.instruction", "And now?")
SAID = draft_card("agent.thought", "Nine.")


@pytest.fixture
def box(cards: CardStore, boxes: BoxStore) -> Callable[..., str]:
    """A box of these cards."""

    def make(*drafts: CardDraft) -> str:
        for draft in drafts:
            cards.add(draft)
        return boxes.create([draft.card_id for draft in drafts], title="talk").box_id

    return make


Box = Callable[..., str]


def types(boxes: BoxStore, box_id: str) -> list[str]:
    return [card.type for card in boxes.view(box_id).cards]


class TestBoxRepair:
    def test_synthesize_adds_a_result_to_an_open_call(self, cbx: Cbx, box: Box, boxes: BoxStore) -> None:
        old = box(ASKED, CALLED)
        before = boxes.view(old)
        answer = cbx("box", "repair", old, "--synthesize", "-o", "json").json()
        assert answer.keys() == {"box_id", "from_box_id", "changes"}
        assert (answer["from_box_id"], [change["kind"] for change in answer["changes"]]) == (old, ["added"])
        new = boxes.view(answer["box_id"])
        assert (new.box.parent_ids, new.box.title) == ([old], "talk")
        result = new.cards[-1]
        assert (result.type, result.tool_call_id, result.author_id) == ("tool.result", "c1", "sys.operator")
        assert json.loads(cbx("render", "--box", answer["box_id"]).out)["messages"][-1] == {
            "role": "tool",
            "tool_call_id": "c1",
            "name": "look",
            "content": '{"error":{"code":"interrupted","message":"The call was interrupted: no result was recorded."}}',
        }
        assert boxes.view(old) == before
        for provider in ("openai", "anthropic"):
            assert cbx("render", "--box", answer["box_id"], "--check", "--format", provider).code == 0

    def test_drop_orphans_removes_the_call_and_keeps_the_text(
        self, cbx: Cbx, box: Box, boxes: BoxStore
    ) -> None:
        old = box(ASKED, CALLED, AGAIN)
        [change] = (answer := cbx("box", "repair", old, "--drop-orphans", "-o", "json").json())["changes"]
        assert (change["kind"], change["position"], change["card_id"], change["rule"]) == (
            "rewritten",
            1,
            CALLED.card_id,
            "call-without-result",
        )
        card = boxes.view(answer["box_id"]).cards[1]
        assert (card.card_id, card.tool_calls) == (change["new_card_id"], None)
        assert card.metadata["edited_from"] == CALLED.card_id

    def test_a_displaced_result_moves_to_its_call(self, cbx: Cbx, box: Box, boxes: BoxStore) -> None:
        old = box(ASKED, CALLED, AGAIN, ANSWERED, SAID)
        answer = cbx("box", "repair", old, "--drop-orphans", "-o", "json").json()
        assert [(change["kind"], change["position"]) for change in answer["changes"]] == [("moved", 3)]
        wanted = [each.card_id for each in (ASKED, CALLED, ANSWERED, AGAIN, SAID)]
        assert boxes.get(answer["box_id"]).card_ids == wanted

    def test_a_valid_box_is_unchanged(self, cbx: Cbx, box: Box, row_counts: Callable[[], Any]) -> None:
        sound = box(ASKED, CALLED, ANSWERED)
        before = row_counts()
        answer = cbx("box", "repair", sound, "--synthesize", "-o", "id")
        assert (answer.code, answer.out, answer.err) == (0, f"{sound}\n", f"unchanged: {sound}\n")
        assert row_counts() == before

    def test_a_dry_run_writes_nothing(self, cbx: Cbx, box: Box, row_counts: Callable[[], Any]) -> None:
        old = box(ASKED, CALLED)
        before = row_counts()
        shown = cbx("box", "repair", old, "--synthesize", "--dry-run")
        assert (shown.code, "(dry run: nothing was written)" in shown.out) == (0, True)
        assert "call-without-result" in shown.out
        assert row_counts() == before

    def test_errors_that_are_not_about_cards_are_refused(
        self, cbx: Cbx, box: Box, row_counts: Callable[[], Any]
    ) -> None:
        old = box(SAID)
        before = row_counts()
        answer = cbx("box", "repair", old, "--drop-orphans")
        assert answer.code == 8
        assert answer.err.splitlines()[-2:] == [
            f"error: box {old} has errors that are not about its cards: no-messages",
            "hint: nothing was written; fix the errors listed above, or try --synthesize",
        ]
        assert row_counts() == before
        assert cbx("box", "repair", old, "--synthesize").code == 0

    def test_a_finding_of_several_providers_is_printed_once(self, cbx: Cbx, box: Box) -> None:
        answer = cbx("box", "repair", box(), "--synthesize")
        assert (answer.code, answer.err.count("no-messages: ")) == (8, 1), answer

    def test_a_box_after_another_can_start_without_a_user_message(self, cbx: Cbx, box: Box) -> None:
        context, output = box(ASKED), box(CALLED)
        words = ("box", "repair", output, "--after", context, "--synthesize", "-o", "json")
        assert [change["kind"] for change in cbx(*words).json()["changes"]] == ["added"]
        refused = cbx("box", "repair", output, "--after", output, "--synthesize")
        assert (refused.code, f"--after names the box to repair, {output}" in refused.err) == (2, True)

    def test_either_synthesize_or_drop_orphans_is_required(self, cbx: Cbx, box: Box) -> None:
        assert cbx("box", "repair", box(ASKED)).code == 2

    def test_a_box_of_another_project_is_not_found(self, cbx: Cbx, box: Box) -> None:
        other = box(ASKED, CALLED)
        assert cbx("-p", "q", "box", "repair", other, "--synthesize").code == 3


class TestBoxCompress:
    def test_expand_restores_the_cards_that_a_summary_replaced(
        self, cbx: Cbx, box: Box, boxes: BoxStore
    ) -> None:
        old = box(ASKED, CALLED, ANSWERED, SAID, AGAIN)
        words = ("box", "compress", old, "--summary", "It was nine.", "--keep", "1", "-o", "json")
        answer = cbx(*words).json()
        assert answer["covers"] == [each.card_id for each in (ASKED, CALLED, ANSWERED, SAID)]
        assert types(boxes, answer["box_id"]) == ["context.compression", "task.instruction"]
        body = cbx("render", "--box", answer["box_id"], "-o", "json").json()
        assert [(each["role"], each["content"]) for each in body["messages"]] == [
            ("system", "It was nine."),
            ("user", "And now?"),
        ]
        back = cbx("box", "expand", answer["box_id"], "-o", "id").out.strip()
        assert boxes.view(back).digest == boxes.view(old).digest
        assert boxes.get(back).parent_ids == [answer["box_id"]]

    def test_a_box_above_the_token_limit_is_compressed_to_fit(
        self, cbx: Cbx, box: Box, boxes: BoxStore, row_counts: Callable[[], Any]
    ) -> None:
        old = box(
            draft_card("task.instruction", "word " * 99), SAID, AGAIN, draft_card("agent.thought", "Ten.")
        )
        words = ("box", "compress", old, "--max-tokens", "60", "-o", "json")
        answer = cbx(*words, "--summary", "It was nine.").json()
        assert types(boxes, answer["box_id"]) == ["context.compression", "task.instruction", "agent.thought"]
        before = row_counts()
        again = cbx(
            "box", "compress", answer["box_id"], "--max-tokens", "60", "--summary-cmd", "exit 3", "-o", "id"
        )
        assert (again.code, again.out.strip()) == (0, answer["box_id"])
        assert "unchanged" in again.err
        less = cbx("box", "compress", old, "--max-tokens", "3", "--summary", "x")
        assert (less.code, "the parts that no summary can replace take" in less.err) == (4, True)
        for options in (("--keep", "1"), ("--model", "gpt-4o")):
            refused = cbx(
                "box",
                "compress",
                old,
                "--summary",
                "x",
                *(() if "--model" in options else words[3:5]),
                *options,
            )
            assert refused.code == 2
        assert row_counts() == before

    def test_cards_appended_after_compression_stay_at_the_end(
        self, cbx: Cbx, box: Box, boxes: BoxStore
    ) -> None:
        old = box(ASKED, SAID, AGAIN)
        new = cbx("box", "compress", old, "--summary", "s", "--keep", "1", "-o", "id").out.strip()
        box(CALLED)
        boxes.append(new, [CALLED.card_id])
        back = cbx("box", "expand", new, "-o", "id").out.strip()
        wanted = [each.card_id for each in (ASKED, SAID, AGAIN, CALLED)]
        assert boxes.get(back).card_ids == wanted

    def test_expand_restores_the_id_of_a_deleted_card(
        self, cbx: Cbx, box: Box, boxes: BoxStore, cards: CardStore
    ) -> None:
        old = box(ASKED, SAID, AGAIN)
        new = cbx("box", "compress", old, "--summary", "s", "--keep", "1", "-o", "id").out.strip()
        cards.delete([SAID.card_id])
        back = cbx("box", "expand", new, "-o", "id")
        assert back.code == 0, back.err
        assert boxes.get(back.out.strip()).card_ids == boxes.get(old).card_ids
        assert back.err.strip() == f"warning: card {SAID.card_id} is gone; the new box contains its id"

    @pytest.mark.parametrize("others", [["s1"], ["s2", "s3"]], ids=["itself", "another that covers it"])
    def test_summaries_that_cover_themselves_are_refused(
        self, cbx: Cbx, box: Box, row_counts: Callable[[], Any], others: list[str]
    ) -> None:
        def summary(card_id: str, covers: list[str]) -> CardDraft:
            return draft_card("context.compression", "s", card_id=card_id, metadata={"covers": covers})

        box(summary("s2", ["s1"]), summary("s3", ["s2"]))
        round_and_round = box(summary("s1", others))
        before = row_counts()
        refused = cbx("box", "expand", round_and_round)
        assert (refused.code, "lists itself" in refused.err) == (4, True), refused
        assert row_counts() == before

    def test_a_summary_command_reads_the_replaced_cards(self, cbx: Cbx, box: Box, boxes: BoxStore) -> None:
        old = box(ASKED, SAID, AGAIN)
        words = ("box", "compress", old, "--summary-cmd", "tr a-z A-Z", "--keep", "1", "-o", "json")
        card = boxes.view(cbx(*words).json()["box_id"]).cards[0]
        assert card_text(card.content) == "── 1 USER ──\n  HOW LATE IS IT?\n\n── 2 ASSISTANT ──\n  NINE."

    @pytest.mark.parametrize(
        ("command", "why"),
        [
            ("echo key sk-ant-REDACTED >&2; exit 3", "failed with exit code 3"),
            ("kill -9 $$", "was killed by signal 9"),
            ("cat > /dev/null", "printed nothing"),
            ("sleep 60", "took more than 0.2 seconds"),
        ],
    )
    def test_a_failed_summary_command_changes_nothing(
        self, cbx: Cbx, box: Box, row_counts: Callable[[], Any], command: str, why: str
    ) -> None:
        old = box(ASKED, SAID, AGAIN)
        before = row_counts()
        timeout = "0.2" if command == "sleep 60" else "60"
        words = ("box", "compress", old, "--summary-cmd", command, "--keep", "1", "--timeout", timeout)
        answer = cbx(*words)
        assert (answer.code, why in answer.err, "sk-ant" in answer.err) == (7, True, False), answer
        assert row_counts() == before

    def test_a_blank_summary_command_or_a_huge_output_is_refused(self, cbx: Cbx, box: Box) -> None:
        words = ("box", "compress", box(ASKED, SAID, AGAIN), "--keep", "1", "--summary-cmd")
        much = cbx(*words, f"head -c {(16 << 20) + 1} /dev/zero")
        assert (much.code, "printed more than 16 MiB" in much.err) == (7, True), much
        blank = cbx(*words, " ")
        assert (blank.code, "--summary-cmd is empty" in blank.err) == (2, True)

    def test_a_box_without_cards_to_replace_is_refused(self, cbx: Cbx, box: Box) -> None:
        answer = cbx("box", "compress", box(ASKED, CALLED), "--summary", "s", "--keep", "0")
        assert (answer.code, "cbx cannot summarize any message before" in answer.err) == (4, True)
        assert cbx("box", "expand", box(draft_card("task.instruction", "x"))).code == 4

    def test_a_blank_summary_is_refused(self, cbx: Cbx, box: Box) -> None:
        answer = cbx("box", "compress", box(ASKED, SAID, AGAIN), "--summary", " ", "--keep", "1")
        assert (answer.code, "the summary is blank" in answer.err) == (4, True)

    def test_a_turn_cannot_compress_a_box(self, cbx: Cbx, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        old = box(ASKED, SAID, AGAIN)
        monkeypatch.setenv("CBX_TURN_ID", "turn_1")
        assert cbx("box", "compress", old, "--summary", "s", "--keep", "1").code == 5
