"""`cbx box`: ordered lists of cards, the contexts that turns read."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "create": "Make a box of cards, in the order given.",
    "list": "List boxes, the last changed first.",
    "show": "Show what is in a box, in order.",
    "append": "Append cards to a box.",
    "replace": "Set the cards of a box.",
    "edit": "Edit the list of a box in VISUAL or EDITOR.",
    "fork": "Make a new box with the same cards.",
    "diff": "Show how one box differs from another.",
    "verify": "Check a box: references, calls and results, digest.",
    "repair": "Make a new box that providers do not refuse.",
    "compress": "Make a new box with a summary in the place of what is old.",
    "expand": "Make a new box with what summaries stand for.",
    "delete": "Remove a box. Its cards stay.",
}
command = noun(__name__, VERBS)
