"""`cbx db gc`: what it asks, answers and reports."""

from collections.abc import Callable

import pytest

from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx

Add = Callable[..., str]
BoxOf = Callable[..., str]


@pytest.fixture
def rubbish(cbx: Cbx, add: Add, box_of: BoxOf) -> str:
    """Two expired cards, a deleted one and a good one; the box that lists them and a card that never was."""
    for card_id in ("expired-1", "expired-2"):
        add("x", "--id", card_id, "--ttl", "0")
    for card_id in ("deleted-1", "good-1"):
        add("x", "--id", card_id)
    box = box_of("expired-1", "expired-2", "deleted-1", "good-1", "never-1")
    succeed(cbx("card", "delete", "deleted-1", "--yes"))
    return box


def test_expired_cards_are_purged_and_dangling_boxes_are_reported(cbx: Cbx, rubbish: str) -> None:
    result = cbx("db", "gc", "--yes")
    assert lines(result) == [
        "purged 2 expired cards",
        f"BOX{' ' * 33}  DANGLING  PROJECT",
        f"{rubbish}         3  p",
    ]
    assert result.err == f"3 references in 1 box are dangling; see `cbx box verify {rubbish}`\n"
    shown = cbx("box", "show", rubbish, "-o", "json").json()
    assert len(shown["card_ids"]) == 5
    assert cbx("card", "show", "deleted-1", "--deleted").code == 0
    assert cbx("card", "show", "expired-1", "--deleted").code == 3


def test_latest_limits_the_number_of_searched_boxes(cbx: Cbx, rubbish: str, box_of: BoxOf) -> None:
    box_of("good-1")
    cut = cbx("db", "gc", "--dry-run", "--latest", "1")
    assert lines(cut) == ["would purge 2 expired cards"]
    assert cut.err == "searched the 1 most recently changed box; --latest 0 searches all\n"
    for enough in ("0", "2"):
        whole = cbx("db", "gc", "--dry-run", "--latest", enough)
        assert rubbish in whole.out
        assert "searched" not in whole.err


def test_purge_also_removes_deleted_cards(cbx: Cbx, rubbish: str) -> None:
    answer = cbx("db", "gc", "--purge", "--yes", "-o", "json").json()
    assert answer == {
        "dry_run": False,
        "purged": {"expired": 2, "deleted": 1, "box_info": 0, "logs": 0},
        "dangling": [{"project_id": "p", "box_id": rubbish, "count": 4}],
    }
    assert lines(cbx("db", "gc", "--purge", "--yes"))[0] == "nothing to purge"
    assert lines(cbx("db", "gc", "--yes", "-o", "id")) == [rubbish]


def test_a_dry_run_prints_the_same_report_and_purges_nothing(
    cbx: Cbx, rubbish: str, row_counts: Callable[[], dict[str, int]]
) -> None:
    before = row_counts()
    said = cbx("db", "gc", "--dry-run")
    assert lines(said)[0] == "would purge 2 expired cards"
    assert said.err == f"3 references in 1 box would be dangling; see `cbx box verify {rubbish}`\n"
    told = cbx("db", "gc", "--dry-run", "--purge", "-o", "json").json()
    assert row_counts() == before
    done = cbx("db", "gc", "--purge", "--yes", "--batch-size", "1", "-o", "json").json()
    assert told == {**done, "dry_run": True}


@pytest.mark.parametrize("options", [(), ("--purge",), ("--all-projects",), ("--dry-run",), ("--yes",)])
def test_no_confirmation_is_requested_if_there_is_nothing_to_purge(
    options: tuple[str, ...], cbx: Cbx, add: Add, box_of: BoxOf
) -> None:
    box_of(add())
    result = cbx("db", "gc", *options)
    assert (lines(result), result.err) == (["nothing to purge"], "")
    nothing = {"expired": 0, "deleted": 0, "box_info": 0, "logs": 0}
    assert cbx("db", "gc", *options, "-o", "json").json()["purged"] == nothing


def test_other_projects_are_purged_only_with_all_projects(cbx: Cbx, rubbish: str) -> None:
    assert cbx("-p", "q", "db", "gc", "--yes", "-o", "json").json()["purged"]["expired"] == 0
    succeed(cbx("-p", "q", "card", "add", "--type", "x", "--text", "x", "--ttl", "0"))
    answer = cbx("-p", "empty", "db", "gc", "--all-projects", "--yes", "-o", "json").json()
    assert answer["purged"]["expired"] == 3
    assert [box["project_id"] for box in answer["dangling"]] == ["p"]


def test_the_details_of_a_deleted_box_are_purged(cbx: Cbx, box_of: BoxOf, database: Database) -> None:
    box_of(title="t")
    database.connection.execute("DELETE FROM card_boxes")
    assert lines(cbx("db", "gc", "--dry-run")) == [
        "would purge 0 expired cards and the details of 1 deleted box"
    ]
    assert cbx("db", "gc", "--yes", "-o", "json").json()["purged"]["box_info"] == 1


class TestAsking:
    def test_a_purge_without_a_terminal_requires_yes(self, cbx: Cbx, rubbish: str) -> None:
        result = cbx("db", "gc", "--purge")
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            "error: Purge 2 expired cards and 1 deleted card of project 'p' permanently? Cannot ask for confirmation without a terminal\n"
            "hint: pass --yes\n"
        )
        everything = cbx("db", "gc", "--all-projects")
        assert "Purge 2 expired cards of the whole database permanently?" in everything.err

    @pytest.mark.parametrize(("typed", "code", "purged"), [("n\n", 130, 0), ("y\n", 0, 2)])
    def test_a_purge_on_a_terminal_asks_for_confirmation(
        self, typed: str, code: int, purged: int, shell: Shell, cbx: Cbx, rubbish: str
    ) -> None:
        asked = shell.on_terminal("db", "gc", "--batch-size", "1", typed=typed)
        assert asked.code == code
        assert ("purged 2 expired cards" in asked.out) == bool(purged)
        assert cbx("db", "gc", "--dry-run", "-o", "json").json()["purged"]["expired"] == 2 - purged

    def test_a_batch_has_at_least_one_row(self, cbx: Cbx) -> None:
        result = cbx("db", "gc", "--batch-size", "0")
        assert result.code == 2
        assert "--batch-size" in result.err
