"""What looks like a secret in the output of commands: a table of patterns, and texts without what they find.

Knows secrets by their looks alone: one that looks like any other word stays.
"""

import re
from typing import NamedTuple

REDACTED = "[redacted]"
# In characters. No secret of the table is longer, but for private keys, which are found by either end.
LONGEST = 4096
# How much is told of a failure, in characters.
_TOLD = 10_000


class Pattern(NamedTuple):
    """What is a secret: the part `secret` of what is found, or all of it where there is no such part."""

    what: str
    found: re.Pattern[str]


def _pattern(what: str, text: str, flags: int = 0) -> Pattern:
    return Pattern(what, re.compile(text, flags))


# Each takes time in proportion to the text, whatever stands in it.
PATTERNS = (
    _pattern(
        "a private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<secret>.*?)(?=-----END [A-Z ]{0,40}PRIVATE KEY|\Z)",
        re.DOTALL,
    ),
    _pattern(
        "the end of a private key",
        r"\A(?P<secret>[\w+/=\s]+)(?=-----END [A-Z ]{0,40}PRIVATE KEY)",
    ),
    _pattern("the password of an address", r"://[^\s:/@\"']{0,256}:(?P<secret>[^\s/@\"']{1,512})@"),
    _pattern(
        "credentials of a request",
        r"\b(?:bearer|basic)\s{1,8}(?P<secret>(?=[^\s\"',;]{0,64}[\d=._-])[^\s\"',;]{8,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "what is called a secret",
        r"(?:pass(?:word|wd|phrase)|pwd|secret|credentials?|token|api[ _-]?key|access[ _-]?key(?:[ _-]?id)?"
        r"|private[ _-]?key|authorization)[\"']?\s{0,8}[=:]\s{0,8}(?!(?:bearer|basic)\s)"
        r"[\"']?(?P<secret>(?<=\")[^\"\n]{1,4096}|(?<=')[^'\n]{1,4096}|[^\s\"',;&)}\]]{1,4096})",
        re.IGNORECASE,
    ),
    _pattern("a key of OpenAI, Anthropic or Stripe", r"\b(?:sk|rk|pk)(?:-|_live_|_test_)[\w-]{8,512}"),
    _pattern("a key of AWS", r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"),
    _pattern("a key of Google", r"\bAIza[\w-]{30,}"),
    _pattern("a token of GitHub", r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,})"),
    _pattern("a token of GitLab, Hugging Face or Slack", r"\b(?:glpat-|hf_|xox[abeprs]-)[\w-]{10,}"),
    _pattern("a JSON web token", r"\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096}"),
)

_REST_OF_A_LINE = re.compile(rf"\A(?:[^\n]{{0,{LONGEST}}}\n|\S{{0,{LONGEST}}})")


def redacted(text: str, *, cut: bool = False) -> str:
    """`text` with `[redacted]` for all that looks like a secret.

    Of a text whose beginning was `cut` off the rest of the first line goes, too: it may be that of a secret.
    """
    if cut:
        text = _REST_OF_A_LINE.sub("", text, count=1)
    for pattern in PATTERNS:
        text = pattern.found.sub(_without_secret, text)
    return text


def told(text: str) -> str:
    """What is told of a failure: without secrets, and of a long text, which may quote anything, its ends."""
    if len(text) <= _TOLD:
        return redacted(text)
    half = _TOLD // 2
    return f"{redacted(text[: half + LONGEST])[:half]} … {redacted(text[-half:], cut=True)}"


def _without_secret(found: re.Match[str]) -> str:
    secret = "secret" if "secret" in found.re.groupindex else 0
    start, end = found.start(secret) - found.start(), found.end(secret) - found.start()
    return found[0][:start] + REDACTED + found[0][end:]
