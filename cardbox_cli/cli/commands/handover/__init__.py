"""`cbx handover`: recipes, without a database."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "list": "List the recipes that --handover NAME finds.",
    "show": "Show a recipe, and what arguments it takes.",
    "validate": "Check recipes: everything that is wrong, with file and line.",
    "schema": "Print the JSON Schema of recipes, for editors and CI.",
}
command = noun(__name__, VERBS)
