"""`cbx card`: the smallest units of information, one by one and by the file."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "add": "Write a card.",
    "list": "List cards, newest first.",
    "search": "Find cards by their words, newest first.",
    "show": "Show cards whole.",
    "edit": "Edit a card's text in VISUAL or EDITOR; makes a new card.",
    "refs": "List the boxes that hold a card.",
    "delete": "Hide cards from readers.",
    "import": "Import conversations: cards, and a box each.",
    "export": "Print a box as a conversation.",
    "lint": "Check conversation files for what a provider would refuse.",
}
command = noun(__name__, VERBS)
