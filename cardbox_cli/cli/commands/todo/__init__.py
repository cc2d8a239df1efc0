"""`cbx todo`: the todo list of a box. A change is a new card at the end of the box; nothing is rewritten."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "add": "Add items to the todo list of a box.",
    "done": "Mark items as done.",
    "reopen": "Mark items as not done after all.",
    "list": "List the todo items of a box.",
}
command = noun(__name__, VERBS)
