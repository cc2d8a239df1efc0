"""Commands that are printed to be copied: quoted for a shell, and no name in them taken for an option.

Pure. The names in them may be of other programs, and hold anything.
"""

import shlex
from collections.abc import Sequence

from cardbox_cli.model.text.visible_text import is_visible


def quoted(word: str) -> str:
    """A word as a shell reads it, on one line and without characters that cannot be seen."""
    if is_visible(word):
        return shlex.quote(word)
    return "$'" + "".join(map(_spelled, word)) + "'"


def _spelled(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    return character if is_visible(character) else f"\\U{ord(character):08x}"


def argument(name: str) -> str:
    """A name as the last argument of a command, behind `--` where it would be taken for an option."""
    return f"-- {quoted(name)}" if name.startswith("-") else quoted(name)


def command_line(words: Sequence[str], *options: str) -> str:
    """The line of `cbx` and these words: noun, verb, the one argument of the verb, its options.

    `options` stand behind those. An argument that would be taken for an option is the last.
    """
    noun_and_verb, name, own = words[:2], words[2:3], words[3:]
    is_option_like = any(each.startswith("-") for each in name)
    plain = [*noun_and_verb, *([] if is_option_like else name), *own, *options]
    line = " ".join(map(quoted, ["cbx", *plain]))
    return f"{line} {argument(name[0])}" if is_option_like else line
