"""The commands on cards and boxes that are measured."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from benchmarks.scale.cards import RARE_PHRASE, RARE_PIECE, RARE_TYPE, RARE_WORD
from benchmarks.scale.measuring import TARGET, Command, Measured, measure_command, measure_completion
from benchmarks.scale.sides import Sides
from benchmarks.scale.telling import timed

PROFILE = """
name: reader
worker_target: nobody
llm_config: {model: any}
"""
RECIPE = """
description: All of one box
target_profile_config: {profile_name: reader}
arguments:
  box: {type: box_id, required: true, description: The box}
context_packing_config:
  inherit_context: {include_boxes_from_args: [box]}
"""


def measure_all(sides: Sides, folder: Path) -> Iterator[Measured]:
    """Everything, the indexes of texts built on the way."""
    recipe, profile = folder / "one-box.yaml", folder / "reader.yaml"
    recipe.write_text(RECIPE)
    profile.write_text(PROFILE)
    for side in sides:
        side.run(f"profile import {profile}")
    for command in commands(recipe):
        yield measure_command(command, sides)
    for words in ("box show", "card show"):
        yield measure_completion(words, sides)
    for side in sides:
        with timed(f"indexed the texts of {side.cards:,} cards"):
            side.run("db index-text")
    for command in indexed_commands():
        yield measure_command(command, sides)


def commands(recipe: Path) -> list[Command]:
    """What is measured before the text index is built."""
    phrase = quote(f'"{" ".join(RARE_PHRASE)}"')
    return [
        Command("box show, whole id", lambda at: f"box show {at.box_id}", TARGET),
        Command("box show, short id", lambda at: f"box show {at.box_id[-8:]}", TARGET),
        Command("box show --tail 5", lambda at: f"box show {at.box_id[-8:]} --tail 5", TARGET),
        Command("card list", lambda at: "card list", TARGET),
        Command("card list --type, frequent", lambda at: "card list --type tool.result", TARGET),
        Command("card list --type, rare", lambda at: f"card list --type {RARE_TYPE}", TARGET),
        Command("card list --turn", lambda at: f"card list --turn {at.turn_id}", TARGET),
        Command("card list --step", lambda at: f"card list --step {at.step_id}", TARGET),
        Command("card list --trace", lambda at: f"card list --trace {at.trace_id}", TARGET),
        Command("card list --author, frequent", lambda at: "card list --author agent-1", TARGET),
        Command("card list --author, nobody", lambda at: "card list --author nobody", TARGET),
        Command("card list --tool-call-id", lambda at: f"card list --tool-call-id {at.tool_call_id}", TARGET),
        Command("card list --since 2h", lambda at: "card list --since 2h", TARGET),
        Command("pack", lambda at: f"pack --handover {recipe} --arg box={at.box_id}", TARGET),
        Command("box list", lambda at: "box list"),
        Command("card show, short id", lambda at: f"card show {at.card_id[-8:]}"),
        Command("card refs", lambda at: f"card refs {at.card_id}"),
        Command("render", lambda at: f"render --box {at.box_id}"),
        Command("card add", lambda at: "card add --type task.instruction --text 'One more'"),
        Command("box append", lambda at: f"box append {at.box_id[-8:]} {at.card_id}"),
        Command("db status", lambda at: "db status"),
        Command("db gc --dry-run", lambda at: "db gc --dry-run"),
        Command("card search, Chinese", lambda at: f"card search {RARE_PIECE}"),
        Command("card search, a word", lambda at: f"card search {RARE_WORD}"),
        Command("card search, a phrase", lambda at: f"card search {phrase}"),
    ]


def indexed_commands() -> list[Command]:
    """What is measured with the text index."""
    phrase = quote(f'"{" ".join(RARE_PHRASE)}"')
    return [
        Command("card search, a word, indexed", lambda at: f"card search {RARE_WORD}", TARGET),
        Command("card search, Chinese, indexed", lambda at: f"card search {RARE_PIECE}", TARGET),
        Command("card search, in 2 %, indexed", lambda at: f"card search {RARE_PHRASE[0]}"),
        Command("card search, a phrase, indexed", lambda at: f"card search {phrase}"),
        Command("card add, indexed", lambda at: "card add --type task.instruction --text 'One more'"),
    ]
