"""Command lines that cbx prints for users to copy.

Names in them may come from other programs and contain any character.
"""

from collections.abc import Iterable, Sequence

from cardbox_cli.text.escaping import is_visible


class Comment(str):
    """An option of a printed command that is a comment at its end, which shells ignore."""

    __slots__ = ()


def split_comment(options: Iterable[str]) -> tuple[list[str], str]:
    """Return the options without comments, and the text of these to append to a command."""
    words = list(options)
    comments = [each for each in words if isinstance(each, Comment)]
    end = "".join(f"  # {each if is_visible(each) else quote_word(each)}" for each in comments)
    return [each for each in words if not isinstance(each, Comment)], end


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


def command_line(words: Sequence[str], *given: str) -> str:
    """Return a `cbx` command line. `words` are the noun, the verb, the verb's argument and its options.

    `given` are options that follow the words. An argument that looks like an option comes last, after `--`.
    Only a `Comment` follows it.
    """
    options, comment = split_comment(given)
    noun_and_verb, name, own = words[:2], words[2:3], words[3:]
    is_option_like = any(each.startswith("-") for each in name)
    plain = [*noun_and_verb, *([] if is_option_like else name), *own, *options]
    line = " ".join(map(quote_word, ["cbx", *plain]))
    return (f"{line} {quote_argument(name[0])}" if is_option_like else line) + comment
