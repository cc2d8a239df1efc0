"""The rules of plain English that a program can check, one function each. CONTRIBUTING.md explains them."""

import re
from collections.abc import Iterator

MAX_SENTENCE_WORDS = 30

# Words that have a plainer one. The pattern is matched case-insensitively, between word boundaries.
WORDS = {
    r"told|tells|tell(?! you)": "report, print, warn, show",
    r"beside|besides": "next to, with, in addition to",
    r"stands|stand(?!ard)|lies": "is, appears, is stored",
    r"bears": "has, carries",
    r"taken up|takes up|take up": "claim, resume",
    r"anew|afresh": "again, new",
    r"otherwise than|but for": "not, except",
    r"mend|mends|mended|mending": "repair, fix",
    r"shall": "must, should, will",
    r"for good": "permanently",
    r"in vain": "wasted",
    r"goes on|go on|going on": "continue",
    r"in the place of|in its place": "instead of, replaces",
    r"looks again|look again": "poll, refresh",
    r"by itself|of itself|by themselves": "automatically",
    r"(?:a|the) \w+ of yours": "your …",
    r"so many": "N, at most N",
    r"that there is not": "unknown, missing",
    r"spelled|spelt|spell|spells|spelling": "encode, format",
    r"fate": "outcome, state",
    r"by whom": "owner, author",
    r"doorbell|doorkeeper": "notification, authentication",
    r"whoever|whatever|somebody|whomever": "you, cbx, or a named component",
    r"lest|thereof|therein|whereof": "plain words",
    r"e\.g\.|i\.e\.": "for example, that is",
}
_WORDS = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead) for pattern, instead in WORDS.items()]

_DOCSTRING_OPENINGS = re.compile(
    r"(What|Whether|How|That|Which|By|Of|As|Where|Those|Whose|Who|When|Why|With|Without|From|To|In|On|At|For|"
    r"Under|Beside|Into|So|Is|Are|Has|Have|Does|Do|Can|May)\b"
)
_SENTENCE_OPENINGS = re.compile(
    r"(Where|Whoever|Whatever|Kept|Of|So is|So are|So has|So do|So does|Nor|Not named)\b"
)
_NEGATED_NOUN = re.compile(
    r"(?<!here )\b(?:is|are|was|were) (?:no (?!longer|more\b|different)|none of)", re.IGNORECASE
)

# Participles that a function may not be named by, alone or after another word.
PARTICIPLES = frozenset(
    [
        "told",
        "said",
        "spelled",
        "settled",
        "asked",
        "found",
        "shown",
        "kept",
        "taken",
        "given",
        "made",
        "drawn",
        "costed",
        "wired",
        "rooted",
        "listed",
        "named",
        "seen",
        "heard",
        "held",
        "joined",
        "begun",
        "ended",
        "read_of",
        "placed",
        "parted",
        "fitted",
        "written",
        "counted",
        "added",
        "moved",
        "marked",
        "freed",
        "judged",
        "unread",
        "changed",
        "loaded",
        "emptied",
        "appended",
        "stored",
    ]
)
_PREPOSITIONS = frozenset(
    [
        "of",
        "at",
        "by",
        "in",
        "on",
        "with",
        "without",
        "from",
        "for",
        "to",
        "under",
        "over",
        "beside",
        "between",
        "behind",
        "after",
        "before",
        "into",
        "as",
    ]
)
_SUPERLATIVES = re.compile(
    r"_*(MOST|LEAST|LONGEST|SHORTEST|ENOUGH|FEW|LOOK|PATIENCE|GRACE|SHOWN|AT_ONCE|SOON|GREATEST)_?"
)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, code spans reduced to a word and links to their text."""
    plain = re.sub(r"`[^`]*`", "CODE", text)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"\*\*|__|[<>]", "", plain)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] )", plain):
        joined = " ".join(paragraph.split())
        yield from (each for each in re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z\"'(])", joined) if each)


def banned_words(text: str) -> Iterator[str]:
    """Each word of the list that the text uses, with what to write."""
    plain = re.sub(r"`[^`]*`", "CODE", text)
    for pattern, instead in _WORDS:
        if found := pattern.search(plain):
            yield f"{found[0]!r}: write {instead}"


def negated_nouns(text: str) -> Iterator[str]:
    """Each "is no list": the verb is negated, not the noun."""
    plain = re.sub(r"`[^`]*`", "CODE", text)
    yield from (f"{found[0]!r}: write 'is not a …'" for found in _NEGATED_NOUN.finditer(plain))


def inverted_sentences(text: str) -> Iterator[str]:
    """Each sentence that does not open with its subject."""
    for sentence in sentences(text):
        if (found := _SENTENCE_OPENINGS.match(sentence)) and not sentence.endswith("?"):
            yield f"a sentence opens with {found[0]!r}: {sentence[:60]}"


def long_sentences(text: str) -> Iterator[str]:
    """Each sentence of more words than a reader holds."""
    for sentence in sentences(text):
        count = len(re.findall(r"[\w'’-]+", sentence))
        if count > MAX_SENTENCE_WORDS:
            yield f"{count} words, at most {MAX_SENTENCE_WORDS}: {sentence[:60]}"


def docstring_opening(text: str) -> Iterator[str]:
    """A docstring whose first word is neither a verb nor a noun."""
    if found := _DOCSTRING_OPENINGS.match(text):
        yield f"begins with {found[0]!r}: begin with a verb or a noun"


def function_name(name: str) -> Iterator[str]:
    """A function that is named by a participle alone, or begins with a preposition."""
    words = name.strip("_").split("_")
    if name.startswith("__"):
        return
    if words[0] in _PREPOSITIONS and name.strip("_") not in _ALLOWED_NAMES:
        yield f"{name}: begins with a preposition"
    if "_".join(words) in PARTICIPLES:
        yield f"{name}: is a participle; name what it does"


# `to_json`, `from_row` and the like are idiomatic for conversions.
_ALLOWED_NAMES = frozenset({"from_mapping"})


def constant_name(name: str) -> Iterator[str]:
    """A constant that is named by a superlative."""
    if _SUPERLATIVES.match(name):
        yield f"{name}: write MAX_, MIN_, _TIMEOUT_SECONDS or _POLL_INTERVAL"
