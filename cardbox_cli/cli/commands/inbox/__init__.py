"""`cbx inbox`: what agents must process, row by row."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "list": "List inbox rows, newest first.",
    "show": "Show an inbox row whole, and who has claimed it.",
    "claim": "Claim due rows for the time of a lease.",
    "ack": "Give a claimed row back as done.",
    "fail": "Give a claimed row back as dead.",
    "defer": "Give a claimed row back, to be tried again later.",
    "retry": "Try a dead row again.",
    "cancel": "End the turn of a queued row before it begins.",
}
command = noun(__name__, VERBS)
