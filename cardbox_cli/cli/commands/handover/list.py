"""`cbx handover list`."""

from typing import Any

from cardbox_cli.cli.options.shared_options import ColumnNames
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, chosen
from cardbox_cli.cli.verb import verb


@verb("list", "cbx handover list", pages=True, reads=True)
def list_recipes(columns: ColumnNames = None) -> None:
    """List the recipes that `--handover NAME` finds: ./handovers, CBX_HANDOVERS, and those that ship."""
    from cardbox_cli.packing import recipe_files

    shown = chosen(_RECIPE, columns)

    def as_json(recipe: recipe_files.ListedRecipe) -> dict[str, Any]:
        return {
            "name": recipe.name,
            "description": recipe.description,
            "source": str(recipe.source),
            "shipped": recipe.shipped,
            "problem": recipe.problem,
        }

    output.emit_list(
        [as_json(recipe) for recipe in recipe_files.list_recipes(recipe_files.recipe_folders())],
        columns=shown,
        item_id=lambda recipe: recipe["name"],
        empty="no recipes",
    )


_RECIPE = (
    Column("NAME", lambda recipe: recipe["name"]),
    Column("FROM", lambda recipe: "cbx" if recipe["shipped"] else recipe["source"]),
    Column(
        "DESCRIPTION",
        lambda recipe: f"broken: {recipe['problem']}" if recipe["problem"] else recipe["description"],
    ),
)
