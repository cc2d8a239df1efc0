"""What the commands print that change the active context of a chat."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.chat.contexts import Changed


def emit_changed(changed: "Changed") -> None:
    """Print what became of the active context. With -o id: the snapshot that matters."""
    shown = changed.loaded or changed.archived
    output.emit(changed, table=lambda: _print_text(changed), ids=[shown] if shown else [])


def _print_text(changed: "Changed") -> None:
    output.facts(
        ("chat", changed.chat_key),
        ("archived", changed.archived),
        ("active", _active(changed)),
        ("found by", changed.why),
    )
    if changed.run_id is not None:
        announce(f"run {changed.run_id} goes on with that from its next step on")


def _active(changed: "Changed") -> str:
    if changed.loaded is None:
        return "empty"
    return f"{changed.loaded}, {count(changed.messages, 'message')}"
