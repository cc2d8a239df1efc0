"""`cbx worker`: runs the turns of a target by a command of yours, and lists who else does."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "run": "Run turns: a command of yours answers for the model.",
    "list": "List the workers that serve this project.",
}
command = noun(__name__, VERBS)
