"""`cbx project`: the tenants of a database. Each exists by its first write; this names and lists them."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "create": "Create a project with a title and an owner.",
    "update": "Change a project, or how its contexts are composed.",
    "list": "List the projects of the database by id.",
    "show": "Show what is known of a project.",
}
command = noun(__name__, VERBS)
