"""`cbx handover`: recipes, without a database."""

from typing import Annotated, Any

import typer

from cardbox_cli.cli.parameters.recipes import load_recipe, recipe_folders, warn_of
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import count
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import CbxError, InvalidRecipe, NotFound

app = noun("List, show and validate handover recipes.")

Recipe = Annotated[
    str, typer.Argument(metavar="FILE|NAME", help="A recipe file, the name of one, or - for stdin.")
]


@app.command("list", epilog=examples("  cbx handover list"))
def list_() -> None:
    """List the recipes that `--handover NAME` finds: ./handovers, CBX_HANDOVERS, and those that ship."""
    from cardbox_cli.packing.recipe_files import ListedRecipe, list_recipes

    def as_json(recipe: ListedRecipe) -> dict[str, Any]:
        return {
            "name": recipe.name,
            "description": recipe.description,
            "source": str(recipe.source),
            "shipped": recipe.shipped,
            "problem": recipe.problem,
        }

    output.emit_list(
        [as_json(recipe) for recipe in list_recipes(recipe_folders())],
        columns=["NAME", "FROM", "DESCRIPTION"],
        row=lambda recipe: [
            recipe["name"],
            "cbx" if recipe["shipped"] else recipe["source"],
            f"broken: {recipe['problem']}" if recipe["problem"] else recipe["description"],
        ],
        item_id=lambda recipe: recipe["name"],
        empty="no recipes",
    )


@app.command(
    epilog=examples("  cbx handover show delegate\n  cbx handover show delegate > handovers/mine.yaml")
)
def show(recipe: Recipe) -> None:
    """Show a recipe as it is written, and what arguments it takes."""
    loaded = load_recipe(recipe)
    declared = loaded.recipe.arguments or {}
    answer = {
        "name": loaded.name,
        "source": str(loaded.source) if loaded.source else None,
        "digest": loaded.recipe.digest(),
        "arguments": {name: each.model_dump() for name, each in declared.items()},
        "recipe": loaded.recipe.model_dump(exclude_unset=True),
    }
    output.emit(answer, table=lambda: output.say(loaded.text.rstrip("\n")), ids=[loaded.name])
    if session().output == "table":
        for name, each in declared.items():
            need = "required" if each.required else "optional"
            announce(f"--arg {name}=…  {each.type}, {need}. {each.description}")


@app.command(epilog=examples("  cbx handover validate handovers/*.yaml"))
def validate(
    recipes: Annotated[
        list[str], typer.Argument(metavar="FILE|NAME...", help="Recipe files or names; - for stdin.")
    ],
) -> None:
    """Check recipes: everything that is wrong with any of them, with file and line. Exit 4 if anything is."""
    failures: list[CbxError] = []
    for name in recipes:
        try:
            warn_of(load_recipe(name))
        except (InvalidRecipe, NotFound) as exc:
            failures.append(exc)
    if failures:
        raise _all_of(failures)
    valid = count(len(recipes), "valid recipe")
    output.emit({"valid": recipes, "problems": []}, table=lambda: output.say(valid), ids=recipes)


def _all_of(failures: list[CbxError]) -> CbxError:
    """One error that tells them all: invalid if any is, else not found."""
    worst = next((each for each in failures if isinstance(each, InvalidRecipe)), failures[0])
    return type(worst)(
        "\n".join(each.message for each in failures),
        hint=worst.hint,
        details={"problems": [one for each in failures for one in each.details.get("problems", [])]},
    )


@app.command(epilog=examples("  cbx handover schema > handover.schema.json"))
def schema() -> None:
    """Print the JSON Schema of recipes, for editors and CI."""
    from cardbox_cli.model.handwritten.recipes import recipe_schema

    output.emit_document(recipe_schema())
