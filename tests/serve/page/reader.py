"""What of a page can be seen, and that templates alone make markup."""

import re
from html.parser import HTMLParser

# The elements that templates and drawings have.
_OURS = frozenset(
    re.findall(
        r"\w+",
        """html head meta title link script body header nav main footer dialog section div p h1 h2 h3 ol ul li dl dt dd
        table thead tbody tr th td a span code kbd pre br time mark ins del details summary progress form input
        label select option button svg rect text""",
    )
)
_SCRIPTS = 2
_NOT_OURS = {"style", "hx-on", "srcdoc"}


class Reader(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Reader:
    """The page, in which nothing stands but what templates make."""
    read = Reader(page)
    assert set(read.tags) <= _OURS, set(read.tags) - _OURS
    # A part of a page has none.
    assert read.tags.count("script") in (0, _SCRIPTS)
    for name, value in read.attributes:
        assert name not in _NOT_OURS, (name, value)
        assert not name.startswith("on"), (name, value)
        if name in ("href", "src", "action", "hx-get"):
            assert re.match("/(?!/)|#", value), (name, value)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e]", read.text)
    return read
