"""`cbx agent`: who can be given turns: a name, the profile that it works by, the workers that serve it."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "provision": "Make an agent, idle, on the roster; or change one.",
    "list": "List the agents of the project, each with what it does now.",
    "show": "Show an agent: who it is, and what it does now.",
}
command = noun(__name__, VERBS)
