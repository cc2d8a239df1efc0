"""`cbx cost` of real conversations: ten that were read by hand, and what following its commands saves.

A finding says what can be seen in words; why each is right, or what it does not see, stands beside it.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

# By the place of a conversation in the file: each finding's code and the positions of its cards.
FOUND: dict[int, list[tuple[str, list[int]]]] = {
    # Three reservations are read, two are changed; all of them are spoken of. That the third (9) only served
    # to be ruled out is not seen: the answer has words, such as "origin", that it shares with the others.
    2: [],
    # Of seven reservations the fifth, sixth and seventh are spoken of, or in what was asked later. The flights
    # from Los Angeles (11) are not, and go along 26 times.
    3: [("unused-result", [11])],
    # A search brought 6,761 characters of flights; two flights were taken of it at once.
    6: [("large-card", [13])],
    # The same search; after it the customer wanted another airport.
    7: [("large-card", [13])],
    # The one flight to San Francisco was dearer than those to Seattle, and is named nowhere.
    10: [("unused-result", [21])],
    # The reservation was read twice (5, 17), and had not changed. Five bookings failed for the same reason,
    # in two spellings; the sixth (51) for another. The flights to Dallas (19) are no finding: the next
    # thought has the number of the customer's flight and its departure from there.
    13: [("error-retried", [25, 29, 41]), ("error-retried", [37, 47]), ("read-again", [5, 17])],
    # 4,723 characters of connections, of which one was offered and booked.
    25: [("large-card", [21])],
    # The receipt of a cancellation repeats the whole reservation (7); the answer says that it was done.
    26: [("unused-result", [13])],
    # Seven reservations, and four receipts. No flight, date, name or price of them is ever said: the answers
    # name them by the ids that were known. Why three could not be cancelled (11, 13, 21) is told in words of
    # the policy; who would ask that again would have to read these again.
    28: [("unused-result", [place]) for place in (9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29)],
    # Nine searches, only to see how long a flight takes that was known by its number; what the answer makes
    # of them, "5 hours 30 minutes", is no word of theirs. Three were made again (55, 57, 59), unchanged; the
    # third was sent twice, which is too little to be unused. The receipt (49) is as that of 26.
    33: [
        *(("read-again", [first, first + more]) for first, more in ((23, 32), (27, 30), (39, 20))),
        *(("unused-result", [place]) for place in (23, 25, 27, 29, 31, 33, 35, 37, 39, 49, 55, 57)),
    ],
}


@pytest.fixture
def boxes(cbx: Cbx, real_data: Path) -> list[str]:
    """The boxes of the conversations."""
    file = real_data / "tau-bench_gpt-4o-airline_first40.json"
    return lines(cbx("card", "import", str(file), "-o", "id"))


def test_the_findings_match_those_found_by_hand(cbx: Cbx, boxes: list[str]) -> None:
    found = {}
    for place in FOUND:
        findings = cbx("cost", boxes[place], "-o", "json").json()["findings"]
        found[place] = sorted(
            (each["code"], [card["position"] for card in each["evidence"]]) for each in findings
        )
    assert found == FOUND


def test_running_the_suggested_commands_saves_the_promised_tokens(
    cbx: Cbx, boxes: list[str], feed: Callable[[str], None]
) -> None:
    """The dearest finding is mended until none is left; each new look costs less by what was found."""
    box = boxes[33]
    for share in cbx("cost", box, "-o", "json").json()["by"]["tool"]:
        if share["name"].isidentifier():
            assert cbx("tool", "add", share["name"], "--read-only").code == 0
    answer = cbx("cost", box, "-o", "json").json()
    first, said = answer["tokens"], words_said(cbx, box)
    while answer["findings"]:
        [found, *_] = answer["findings"]
        box = follow(cbx, found["fix"], feed)
        later = cbx("cost", box, "-o", "json").json()
        assert answer["tokens"] - later["tokens"] >= found["tokens"], found["code"]
        answer = later
    assert answer["tokens"] < 0.4 * first
    assert words_said(cbx, box) == said
    for provider in ("openai", "anthropic"):
        assert cbx("render", "--box", box, "--check", "--format", provider).code == 0


@pytest.mark.parametrize("place", [6, 7, 25])
def test_a_summary_that_replaces_a_large_card_makes_the_request_smaller(
    cbx: Cbx, boxes: list[str], place: int
) -> None:
    """The command covers the card, and the request is smaller by more than it."""
    answer = cbx("cost", boxes[place], "-o", "json").json()
    [large] = answer["findings"]
    words = [
        each.replace("@summary.md", "Two flights were found.")
        for each in shlex.split(large["fix"], comments=True)[1:]
    ]
    made = cbx(*words, "-o", "json").json()
    [card] = large["evidence"]
    assert card["card_id"] in made["covers"]
    later = cbx("cost", made["box_id"], "-o", "json").json()
    assert answer["steps"][-1]["tokens"] - later["steps"][-1]["tokens"] > card["tokens"]


def test_the_fix_for_a_coding_session_fits_its_token_limit(cbx: Cbx, real_data: Path) -> None:
    """A tree of all files (7) is most of the last request; the note that the command puts in its place keeps
    what it promises. The list of a folder (9) said nothing that the tree had not: all of its names that the
    answer has were known."""
    file = real_data / "claude-code_session_5c0375b4.jsonl"
    *_, box = lines(cbx("card", "import", str(file), "-o", "id"))
    found = cbx("cost", box, "-o", "json").json()["findings"]
    assert [(each["code"], [card["position"] for card in each["evidence"]]) for each in found] == [
        ("large-card", [7]),
        ("unused-result", [9]),
    ]
    words = shlex.split(found[0]["fix"], comments=True)[1:]
    assert words[words.index("--fit") + 1] == "largest-results"
    fitted = cbx(*words, "--explain", "-o", "json").json()["explanation"]["tokens"]
    assert fitted <= int(words[words.index("--max-tokens") + 1]) < found[0]["evidence"][0]["tokens"]


def words_said(cbx: Cbx, box: str) -> list[str]:
    """What the assistant told the user."""
    messages = json.loads(succeed(cbx("render", "--box", box)))["messages"]
    return [each["content"] for each in messages if each["role"] == "assistant" and each["content"]]


def follow(cbx: Cbx, fix: str, feed: Callable[[str], None]) -> str:
    """Run a printed pipe, with `grep` and `xargs` as they do; the box that comes of it."""
    show, grep, edit, *repair = (shlex.split(piece, comments=True) for piece in fix.split(" | "))
    unwanted = set(grep[3::2])
    feed("\n".join(card for card in lines(cbx(*show[1:])) if card not in unwanted))
    made = succeed(cbx(*edit[1:])).strip()
    for words in repair:
        assert words[:2] == ["xargs", "cbx"]
        made = succeed(cbx(*words[2:], made)).strip()
    return made
