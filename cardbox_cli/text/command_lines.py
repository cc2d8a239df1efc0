"""Command lines that cbx prints for users to copy.

Names in them may come from other programs and contain any character.
"""

from collections.abc import Sequence

from cardbox_cli.text.escaping import is_visible


def quote_word(word: str) -> str:
    """Quote a word for a shell. The result is one line without invisible characters."""
    import shlex  # most commands print no command

    if is_visible(word):
        return shlex.quote(word)
    return "$'" + "".join(map(_shell_escape, word)) + "'"


def _shell_escape(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    return character if is_visible(character) else f"\\U{ord(character):08x}"


def quote_argument(name: str) -> str:
    """Quote the last argument of a command. Puts `--` before it if it looks like an option."""
    return f"-- {quote_word(name)}" if name.startswith("-") else quote_word(name)


def command_line(words: Sequence[str], *options: str) -> str:
    """Return a `cbx` command line. `words` are the noun, the verb, the verb's argument and its options.

    `options` follow the words. An argument that looks like an option comes last, after `--`.
    """
    noun_and_verb, name, own = words[:2], words[2:3], words[3:]
    is_option_like = any(each.startswith("-") for each in name)
    plain = [*noun_and_verb, *([] if is_option_like else name), *own, *options]
    line = " ".join(map(quote_word, ["cbx", *plain]))
    return f"{line} {quote_argument(name[0])}" if is_option_like else line
