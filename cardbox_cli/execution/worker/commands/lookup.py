"""Whether the program of a command line is there at all, asked before anything is run by it."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping

# What may stand between the words of a command line that fails where its first program is missing.
_HARMLESS = frozenset({"|", "&&", "<", ">", ">>", ">&", "<&", "<<"})
# A word that means itself: nothing in it is expanded or assigned, and it is no number of a redirection.
_PLAIN = re.compile(r"(?!\d+$)[\w./+@%,:-][\w./+@%,: -]*")


def missing_program(command: str, environment: Mapping[str, str]) -> str | None:
    """The first word of a command line where `sh` certainly finds no such program; else None.

    `environment` is all that it will have.

    Lists of commands, functions, and words that the shell would expand are left to it.
    """
    word = _first_word(command)
    if word is None:
        return None
    if "/" in word:
        return None if os.path.isfile(word) and os.access(word, os.X_OK) else word
    known = subprocess.run(
        ["/bin/sh", "-c", 'command -v "$1"', "cbx", word],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return None if known.returncode == 0 else word


def _first_word(command: str) -> str | None:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>\n`")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    marks = {word for word in words if not word.strip(";&|()<>\n`")}
    return words[0] if words and marks <= _HARMLESS and _PLAIN.fullmatch(words[0]) else None
