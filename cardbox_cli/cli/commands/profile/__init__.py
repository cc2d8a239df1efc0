"""`cbx profile`: the static configurations of agents, found by name."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "import": "Store profiles from YAML files.",
    "list": "List the profiles of the project by name.",
    "show": "Show a profile: its names and boxes, and its configuration.",
    "validate": "Check profiles: everything that is wrong, with file and line.",
}
command = noun(__name__, VERBS)
