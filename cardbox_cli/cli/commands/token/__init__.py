"""`cbx token`: who may read a project over HTTP."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "create": "Make a token, which is printed once.",
    "list": "List the tokens of the project.",
    "revoke": "Let a token open nothing any more.",
}
command = noun(__name__, VERBS)
