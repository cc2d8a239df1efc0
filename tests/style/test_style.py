"""Plain English, checked: one test per rule and area. The lists of exceptions in exceptions/ may only shrink.

`pytest tests/style --shrink` rewrites the lists without what no longer occurs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.style import rules, sources

EXCEPTIONS = Path(__file__).parent / "exceptions"

Rule = Callable[[str], Iterator[str]]
PROSE: dict[str, Rule] = {
    "words": rules.banned_words,
    "negated-nouns": rules.negated_nouns,
    "inversions": rules.inverted_sentences,
    "long-sentences": rules.long_sentences,
}
AREAS: dict[str, Callable[[], Iterable[sources.Text]]] = {
    "messages": sources.messages,
    "help": sources.help_texts,
    "docstrings": lambda: [*sources.docstrings(), *sources.comments()],
    "docs": sources.docs,
}


def listed(area: str, rule: str) -> Counter[str]:
    """The exceptions of an area and a rule: how many each file may have."""
    path = EXCEPTIONS / f"{area}.{rule}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter({file: int(count) for file, _, count in (line.rpartition(" ") for line in lines)})


def check(area: str, rule: str, found: Iterable[tuple[str, str]], shrink: bool) -> None:
    """Fail if a file has more findings than its exception allows, or fewer: a list may only shrink."""
    places = defaultdict(list)
    for path, finding in found:
        places[path].append(finding)
    allowed = listed(area, rule)
    if shrink:
        kept = {path: min(len(places[path]), most) for path, most in allowed.items() if places.get(path)}
        lines = [f"{path} {count}\n" for path, count in sorted(kept.items())]
        path = EXCEPTIONS / f"{area}.{rule}.txt"
        path.write_text("".join(lines)) if lines else path.unlink(missing_ok=True)
        allowed = Counter(kept)
    more = [
        f"{path}: {finding}"
        for path, findings in sorted(places.items())
        if len(findings) > allowed[path]
        for finding in findings
    ]
    assert not more, "\n".join(more)
    fewer = [path for path, most in allowed.items() if len(places.get(path, ())) < most]
    assert not fewer, f"shorten the list with --shrink: {', '.join(fewer)}"


@pytest.fixture
def shrink(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--shrink"))


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("rule", PROSE)
def test_prose_follows_the_style_rules(area: str, rule: str, shrink: bool) -> None:
    found = (
        (text.path, f"{text.owner}: {each}") for text in AREAS[area]() for each in PROSE[rule](text.text)
    )
    check(area, rule, found, shrink)


def test_docstrings_begin_with_a_verb_or_a_noun(shrink: bool) -> None:
    found = (
        (text.path, f"{text.owner}: {each}")
        for text in sources.docstrings()
        for each in rules.docstring_opening(text.text)
    )
    check("docstrings", "openings", found, shrink)


def test_function_names_follow_the_style_rules(shrink: bool) -> None:
    found = (
        (path, finding) for path, node in sources.functions() for finding in rules.function_name(node.name)
    )
    check("names", "functions", found, shrink)


def test_constant_names_follow_the_style_rules(shrink: bool) -> None:
    found = ((path, finding) for path, name in sources.constants() for finding in rules.constant_name(name))
    check("names", "constants", found, shrink)


def test_a_class_name_is_used_once(shrink: bool) -> None:
    counts = Counter(node.name for _, node in sources.classes())
    found = (
        (path, f"class {node.name} has a namesake")
        for path, node in sources.classes()
        if counts[node.name] > 1
    )
    check("names", "classes", found, shrink)


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (rules.banned_words, "What was told beside it", "cbx prints it next to the table"),
        (rules.banned_words, "a command of yours", "your command"),
        (rules.negated_nouns, "'x' is no list of messages", "'x' is not a list of messages"),
        (rules.negated_nouns, "that is none of OpenAI's", "there is no file"),
        (rules.inverted_sentences, "Where it is missing, cbx stops.", "If it is missing, cbx stops."),
        (rules.inverted_sentences, "Kept of a token is its hash.", "cbx stores only the hash of a token."),
        (rules.inverted_sentences, "Good. Of each command 64 KiB are stored.", "Where do errors go?"),
        (rules.long_sentences, "word " * 31 + ".", "word " * 30 + ". " + "Word " * 30 + "."),
        (rules.docstring_opening, "Whether it is idle.", "Return whether it is idle."),
        (rules.function_name, "told", "redact"),
        (rules.function_name, "_of_inbox", "inbox_rows"),
        (rules.constant_name, "_LONGEST", "MAX_LENGTH"),
        (rules.constant_name, "MOST", "_POLL_INTERVAL"),
    ],
)
def test_a_rule_rejects_a_bad_example_and_accepts_a_good_one(rule: Rule, bad: str, good: str) -> None:
    assert list(rule(bad))
    assert not list(rule(good))
