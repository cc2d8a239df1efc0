"""`cbx handover schema`."""

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("schema", "cbx handover schema > handover.schema.json", pages=True)
def print_recipe_schema() -> None:
    """Print the JSON Schema of recipes, for editors and CI."""
    from cardbox_cli.model.handwritten.recipes import recipe_schema

    output.emit_document(recipe_schema())
