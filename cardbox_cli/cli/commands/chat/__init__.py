"""`cbx chat`: what a message carries with it. Transcripts, working contexts, archives."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "tools": "Print the tools by which a model steers its chat's context.",
    "call": "Execute a call of one of those tools.",
    "import": "Import chats from files of the on-disk layout.",
    "export": "Write a chat as files of the on-disk layout.",
}
command = noun(__name__, VERBS)
