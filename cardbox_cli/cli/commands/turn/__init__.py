"""`cbx turn`: the runs of agents: to be looked at, awaited, and freed."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "list": "List turns, newest first.",
    "show": "Show one turn on one page.",
    "trace": "Show the turns of a trace as a tree.",
    "logs": "Show what the commands of a turn wrote on stderr.",
    "watch": "Print what happens to a turn, until it has ended.",
    "wait": "Wait until a turn has ended, and print what it delivered.",
    "report": "Report the result of a tool call to a turn that waits.",
    "nudge": "Notify the workers of a turn again.",
    "retry": "Ask anew for a turn that ended otherwise than in success.",
    "replay": "Run a turn again, and compare what came.",
    "fork": "Go on from a step of a turn, otherwise than it did.",
    "stop": "End a turn at once as canceled.",
    "reclaim": "Take a turn away from whoever runs it.",
    "requeue": "Put a turn back into its agent's queue.",
    "fail": "End a turn as failed, with a reason.",
    "rebox": "Give a turn that waits another context or output box.",
    "rebuild": "Make the lost head of an agent anew.",
}
command = noun(__name__, VERBS)
