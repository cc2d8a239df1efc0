"""`cbx handover show`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.options.recipe_arguments import load_recipe
from cardbox_cli.cli.options.value_types import RECIPE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

Recipe = Annotated[str, Argument(click_type=RECIPE, help="A recipe file, the name of one, or - for stdin.")]


@verb(
    "show",
    "cbx handover show delegate",
    "cbx handover show delegate > handovers/mine.yaml",
    pages=True,
    reads=True,
)
def show_recipe(recipe: Recipe) -> None:
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
    output.emit(answer, table=lambda: output.print_text(loaded.text.rstrip("\n")), ids=[loaded.name])
    if session().format.kind == "text":
        for name, each in declared.items():
            need = "required" if each.required else "optional"
            announce(f"--arg {name}=…  {each.type}, {need}. {each.description}")
