"""Finds recipes, and reads their arguments from options and files."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cardbox_cli.cli.last_ids import LAST, resolved_or_given
from cardbox_cli.cli.options.input_files import (
    parse_json,
    read_mapping,
    source_name,
    standard_input,
    text_or_file,
)
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import InvalidRecipe, UsageError
from cardbox_cli.text.error_messages import did_you_mean

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe
    from cardbox_cli.packing.recipe_files import LoadedRecipe
    from cardbox_cli.store.boxes import BoxStore


# key=text, key=@file, key:=json
_ARGUMENT = re.compile(r"(?P<key>[^\s:=]+)(?P<kind>:?=)(?P<value>.*)", re.DOTALL)


Arguments = Annotated[
    list[str] | None,
    Option(
        "--arg",
        "-a",
        metavar="K=V",
        help="An argument of the recipe: key=text, key=@file or key:=json. A box is a full id, a unique "
        "part at its start or end, or @last. Repeat a key for a list.",
    ),
]
ArgumentFiles = Annotated[
    list[str] | None, Option("--args", click_type=FILE, help="A YAML or JSON file of arguments; - for stdin.")
]


AllowDangling = Annotated[
    bool, Option("--allow-dangling", help="Inherit boxes with ids of cards that do not exist.")
]


def load_recipe(name_or_path: str) -> "LoadedRecipe":
    from cardbox_cli.model.handwritten.yaml_files import MAX_BYTES, decode_text
    from cardbox_cli.packing.recipe_files import LoadedRecipe, parse_recipe, read_recipe, recipe_folders

    if name_or_path != "-":
        loaded = read_recipe(name_or_path, folders=recipe_folders())
        _announce_override(name_or_path, loaded)
        return loaded
    source = source_name("-")
    text = decode_text(standard_input().read(MAX_BYTES + 1), source, refuse_with=InvalidRecipe)
    return LoadedRecipe(parse_recipe(text, source), name="stdin", source=None, text=text)


def _announce_override(name: str, loaded: "LoadedRecipe") -> None:
    from cardbox_cli.packing.recipe_files import OWN_FOLDER, recipe_files

    ships = recipe_files([])
    is_own = (
        "/" not in name and loaded.source is not None and loaded.source.parent == OWN_FOLDER and name in ships
    )
    if is_own and not OWN_FOLDER.samefile(ships[name].parent):
        announce(f"note: recipe {name!r} is {loaded.source}, which overrides the recipe built into cbx")


def announce_argument_use(recipe: "Recipe", name: str, arguments: Mapping[str, Any]) -> None:
    """Announce the arguments that have no effect, and those that rules use but that are not given."""
    for unused in recipe.unused_arguments(arguments):
        hint = did_you_mean(unused, recipe.missing_arguments(arguments))
        announce(f"warning: recipe {name!r} does not use the argument {unused!r}{hint}")
    for missing in recipe.missing_arguments(arguments):
        announce(f"note: recipe {name!r} packs nothing for the argument {missing!r}: it has no value")


def parse_arguments(given: Sequence[str], files: Sequence[str], recipe: "Recipe") -> dict[str, Any]:
    """Return the arguments of `--args` files and `--arg` options. An option wins over a file.

    A repeated key becomes a list. In arguments that are boxes, `@last` remains as it is. Text for an argument
    that is declared as an integer, a number or a boolean is read as one, if it is one. Raises UsageError for
    a malformed option.
    """
    arguments: dict[str, Any] = {}
    for path in files:
        arguments |= read_mapping(path, items="arguments", hint="write one KEY: VALUE per line")
    lists: dict[str, list[Any]] = {}
    for option in given:
        key, value = _parse_argument(option, recipe)
        lists.setdefault(key, []).append(value)
    arguments.update({key: values[0] if len(values) == 1 else values for key, values in lists.items()})
    return arguments


def resolve_boxes(arguments: dict[str, Any], recipe: "Recipe", boxes: "BoxStore") -> dict[str, Any]:
    """Return the arguments with full ids of boxes. Values that match no box stay as they are.

    Raises AmbiguousId, and NotFound for an unknown `@last`.
    """

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(each) for each in value]
        return resolved_or_given(boxes.resolve, value) if isinstance(value, str) and value else value

    of_boxes = {key: resolved(arguments[key]) for key in recipe.box_arguments if key in arguments}
    return {**arguments, **of_boxes}


def _parse_argument(option: str, recipe: "Recipe") -> tuple[str, Any]:
    match = _ARGUMENT.fullmatch(option)
    if match is None:
        raise UsageError(
            f"--arg {option[:60]!r} is not KEY=VALUE",
            hint="pass KEY=text, KEY=@file or KEY:=json, for example --arg limit:=3",
        )
    key, kind, value = match["key"], match["kind"], match["value"]
    if kind == ":=":
        return key, parse_json(value, f"--arg {key}")
    is_last_box = value == LAST and key in recipe.box_arguments
    return key, value if is_last_box else recipe.read_text(key, text_or_file(value))
