"""What the audit keeps of a tool: its command without what looks like a secret, as no row is taken back."""

from cardbox_cli.model.identity import Tool


def command_of(tool: Tool) -> str | None:
    """The command that answers a call, fit for the audit; None where a report does."""
    from cardbox_cli.execution.worker.command_output import redacted

    return None if tool.command is None else redacted(tool.command)
