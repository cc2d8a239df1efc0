"""`cbx tool`: what agents may call, and the commands that answer."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "add": "Register a tool.",
    "list": "List the tools of the project by name.",
    "show": "Show a tool whole.",
    "remove": "Remove a tool.",
}
command = noun(__name__, VERBS)
