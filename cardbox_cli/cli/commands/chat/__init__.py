"""`cbx chat`: what a message carries with it. Transcripts, working contexts, archives."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "open": "Talk to an agent by hand, a line at a time.",
    "send": "Append a user's message to a chat.",
    "reply": "Append what was sent to a chat.",
    "run": "Answer a chat's newest unanswered message by a command.",
    "correct": "Correct the message that a run is answering.",
    "list": "List the archived contexts of a chat, or the chats.",
    "show": "Show a chat: its context, its transcript, its runs.",
    "transcript": "Print what was said in a chat.",
    "new": "Archive a chat's context, and begin a new one.",
    "load": "Go on with an archived context of a chat.",
    "clear": "Empty a chat's context without archiving it.",
    "memory": "Show or set what a chat remembers in any case.",
    "persona": "Show or set the personas of the project's chats.",
    "why": "Explain why a chat remembers, or does not.",
    "tools": "Print the tools by which a model steers its chat's context.",
    "call": "Execute a call of one of those tools.",
    "import": "Import chats from files of the on-disk layout.",
    "export": "Write a chat as files of the on-disk layout.",
}
command = noun(__name__, VERBS)
