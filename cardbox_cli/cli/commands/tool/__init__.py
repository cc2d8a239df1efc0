"""`cbx tool`: what agents may call, and the commands that answer."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "add": "Register a tool.",
    "list": "List the tools of the project by name.",
    "show": "Show a tool whole.",
    "call": "Call an internal handler on behalf of a turn.",
    "remove": "Remove a tool.",
}
command = noun(__name__, VERBS)
