"""`cbx batch`: tasks that were handed out together: to be looked at, awaited, and canceled."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "list": "List batches, newest first.",
    "show": "Show a batch and the results of its children.",
    "watch": "Watch a batch until it has ended.",
    "cancel": "End a batch as failed, and stop its children.",
}
command = noun(__name__, VERBS)
