"""`cbx handover validate`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.options.input_files import all_of
from cardbox_cli.cli.options.recipe_arguments import load_recipe, warn_of
from cardbox_cli.cli.options.value_types import RECIPE
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import CbxError, InvalidRecipe, NotFound
from cardbox_cli.model.text.quantities import count


@verb("validate", "cbx handover validate handovers/*.yaml")
def validate_recipes(
    recipes: Annotated[list[str], Argument(click_type=RECIPE, help="Recipe files or names; - for stdin.")],
) -> None:
    """Check recipes: everything that is wrong with any of them, with file and line. Exit 4 if anything is."""
    failures: list[CbxError] = []
    for name in recipes:
        try:
            warn_of(load_recipe(name))
        except (InvalidRecipe, NotFound) as exc:
            failures.append(exc)
    if failures:
        raise all_of(failures)
    valid = count(len(recipes), "valid recipe")
    output.emit({"valid": recipes, "problems": []}, table=lambda: output.print_text(valid), ids=recipes)
