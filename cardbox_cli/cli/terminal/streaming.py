"""What a command says, shown while it says it: where that is text, and nothing that acts on a terminal."""

import codecs
import re
import sys

from cardbox_cli.text import printable

# What a JSON answer or a stream of events begins with.
_NO_TEXT = re.compile(r"[{\[]|event:|data:")


class Streaming:
    """Shows the output of commands, one after the other. `told` is what was shown of the last one."""

    def __init__(self, *, any_text: bool) -> None:
        """`any_text`: also what looks like JSON is text."""
        self._any_text = any_text
        self.told = ""

    def end_line(self) -> None:
        """End the line that was shown last, if it has none."""
        if self.told and not self.told.endswith("\n"):
            sys.stdout.write("\n")

    def listen(self) -> "_Ear":
        """What hears the next command."""
        self.end_line()
        self.told = ""
        return _Ear(self, any_text=self._any_text)


class _Ear:
    """Hears the pieces of what one command prints. Shows them once it is plain that they are text."""

    def __init__(self, streaming: Streaming, *, any_text: bool) -> None:
        self._streaming = streaming
        self._any_text = any_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._is_text: bool | None = None

    def __call__(self, piece: bytes) -> None:
        self._held += self._decoder.decode(piece)
        if self._is_text is None and self._held.strip():
            self._is_text = self._any_text or not _NO_TEXT.match(self._held.lstrip())
        if self._is_text:
            self._streaming.told += self._held
            sys.stdout.write(printable(self._held))
            sys.stdout.flush()
            self._held = ""
