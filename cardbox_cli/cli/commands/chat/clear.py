"""`cbx chat clear`."""

from cardbox_cli.cli.commands.chat.changing import emit_changed
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.escaping import spelled
from cardbox_cli.model.text.quantities import count


@verb("clear", "cbx chat clear telegram-chat-42", "cbx chat clear telegram-chat-42 --yes")
def clear_chat_context(key: ChatKey, yes: Yes = False) -> None:
    """Empty the active context of a chat without archiving it, and ask first. The transcript stays.

    `cbx chat new` keeps what was active.
    """
    from cardbox_cli.chat.contexts import clear, messages_of

    with open_database() as database:
        room = room_of(database)
        with database.snapshot():
            held = len(messages_of(room, room.chats.get(key)))
        if held:
            confirm(f"Forget {count(held, 'message')} of chat {spelled(key)}?", yes=yes)
        changed = clear(room, key)
    emit_changed(changed)
