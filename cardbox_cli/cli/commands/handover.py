"""`cbx handover`: recipes. Needs no database."""

from typing import Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.options.input_files import combine_failures
from cardbox_cli.cli.options.recipe_arguments import load_recipe
from cardbox_cli.cli.options.shared_options import column_option
from cardbox_cli.cli.options.value_types import RECIPE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, choose_columns
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import CbxError, InvalidRecipe, NotFound
from cardbox_cli.text.quantities import format_count


@verb("list", "cbx handover list", pages=True, reads=True)
def list_recipes(columns: Annotated[str | None, column_option("name,description")] = None) -> None:
    """List the recipes that `--recipe NAME` finds: in ./handovers, in CBX_HANDOVERS, and in cbx itself."""
    from cardbox_cli.packing import recipe_files

    shown = choose_columns(_RECIPE_COLUMNS, columns)
    recipes = [
        {
            "name": recipe.name,
            "description": recipe.description,
            "source": str(recipe.source),
            "shipped": recipe.shipped,
            "problem": recipe.problem,
        }
        for recipe in recipe_files.list_recipes(recipe_files.recipe_folders())
    ]
    output.emit_list(recipes, columns=shown, item_id=lambda recipe: recipe["name"], empty="no recipes")


_RECIPE_COLUMNS = (
    Column("NAME", lambda recipe: recipe["name"]),
    Column("FROM", lambda recipe: "cbx" if recipe["shipped"] else recipe["source"]),
    Column(
        "DESCRIPTION",
        lambda recipe: f"broken: {recipe['problem']}" if recipe["problem"] else recipe["description"],
    ),
)


Recipe = Annotated[
    str, Argument(click_type=RECIPE, help="A recipe file, the name of a recipe, or - for stdin.")
]


@verb(
    "show",
    "cbx handover show delegate",
    "cbx handover show delegate > handovers/mine.yaml",
    pages=True,
    reads=True,
)
def show_recipe(recipe: Recipe) -> None:
    """Show the text of a recipe and its arguments."""
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
            requirement = "required" if each.required else "optional"
            announce(f"--arg {name}=…  {each.type}, {requirement}. {each.description}")


@verb("validate", "cbx handover validate handovers/*.yaml", "cbx handover validate --strict handovers/*.yaml")
def validate_recipes(
    recipes: Annotated[list[str], Argument(click_type=RECIPE, help="Recipe files or names; - for stdin.")],
    strict: Annotated[bool, Option("--strict", help="Treat each warning as an error.")] = False,
) -> None:
    """Check recipes, and print each error with file and line. Exit 4 if there are errors."""
    from cardbox_cli.model.handwritten.documents import describe_problem, document_error, format_problem
    from cardbox_cli.packing.recipe_files import recipe_warnings

    failures: list[CbxError] = []
    warned: list[dict[str, Any]] = []
    for name in recipes:
        try:
            loaded = load_recipe(name)
        except (InvalidRecipe, NotFound) as exc:
            failures.append(exc)
            continue
        doubts = recipe_warnings(loaded)
        if doubts and strict:
            hint = "without --strict, these are warnings"
            failures.append(document_error(InvalidRecipe, loaded.place, doubts, hint=hint))
            continue
        for doubt in doubts:
            announce(f"warning: {format_problem(loaded.place, doubt)}")
            warned.append(describe_problem(loaded.place, doubt))
    if failures:
        raise combine_failures(failures)
    valid = format_count(len(recipes), "valid recipe")
    answer = {"valid": recipes, "problems": [], "warnings": warned}
    output.emit(answer, table=lambda: output.print_text(valid), ids=recipes)


@verb("schema", "cbx handover schema > handover.schema.json", pages=True)
def print_recipe_schema() -> None:
    """Print the JSON Schema of recipes, for editors and CI."""
    from cardbox_cli.model.handwritten.recipes import recipe_schema

    output.emit_document(recipe_schema())
