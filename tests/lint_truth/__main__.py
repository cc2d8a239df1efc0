"""Compares what the lint finds with what providers said, and prints a line for each provider, and each miss.

Exit code 8 where the lint is wrong, 77 where the data are missing.
"""

import sys
from collections.abc import Iterator, Sequence

import msgspec

from cardbox_cli.providers.registry import PROVIDERS
from tests.lint_truth.checking import errors, provider_of
from tests.lint_truth.mutations import mutations_of
from tests.lint_truth.mutations.mutation import Mutation
from tests.lint_truth.recorded import FOLDERS, SENSES, Recorded, cases, folder, recorded
from tests.lint_truth.recorded import PROVIDERS as APIS

# How many accepted requests each mutation is made of, and the share of what is made that must be found.
_TIMES = 8
_LEAST_FOUND = 0.9
_LEAST_KINDS = 60


class Score(msgspec.Struct):
    """How often the lint was right about a provider's requests, and where it was not."""

    accepted: int = 0
    refused: int = 0
    hidden: int = 0
    cases: int = 0
    kinds: int = 0
    mutated: int = 0
    found: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)
    missed: list[str] = msgspec.field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        """Whether nothing is wrong, and enough of the mutations were found."""
        return not self.wrong and self.kinds >= _LEAST_KINDS and self.found >= _LEAST_FOUND * self.mutated


def main() -> int:
    """Print what was measured."""
    data = folder()
    if data is None:
        print(
            f"lint-truth: the recorded requests are missing: no {' and no '.join(map(str, FOLDERS))}",
            file=sys.stderr,
        )
        return 77
    requests, small = recorded(data), cases(data)
    scores = {provider: score(provider, requests, small) for provider in APIS.values()}
    print(_row("provider", "accepted", "refused", "hidden", "cases", "kinds", "mutations", "found"))
    for provider, each in scores.items():
        share = f"{each.found / each.mutated:.1%}" if each.mutated else "-"
        print(
            _row(
                provider,
                each.accepted,
                each.refused,
                each.hidden,
                each.cases,
                each.kinds,
                each.mutated,
                share,
            )
        )
    for provider, each in scores.items():
        for line in (
            *(f"wrong: {line}" for line in each.wrong),
            *(f"not found: {line}" for line in each.missed),
        ):
            print(f"{provider}: {line}")
    return 0 if all(each.is_enough for each in scores.values()) else 8


def score(provider: str, requests: Sequence[Recorded], small: Sequence[Recorded]) -> Score:
    """How the lint does on all that there is of one provider."""
    made = Score()
    if provider not in PROVIDERS:
        made.wrong.append("cbx has no such format")
        return made
    own = [each for each in requests if each.provider == provider]
    for each in own:
        _judge(made, each)
    for each in small:
        if each.provider == provider:
            made.cases += 1
            _judge_case(made, each)
    taken = [each for each in own if each.refused is None]
    for mutation in mutations_of(provider):
        _try(made, mutation, taken)
    return made


def _judge(made: Score, each: Recorded) -> None:
    found = errors(each.request, each.provider)
    if each.refused is None:
        made.accepted += 1
        if found:
            made.wrong.append(f"{each.place} was accepted: {_told(found)}")
        if (taken := provider_of(each.request)) != each.provider:
            made.wrong.append(f"{each.place} is taken as a request to {taken}")
    elif each.hidden is not None:
        made.hidden += 1
    else:
        made.refused += 1
        if not found:
            made.wrong.append(f"{each.place} was refused: {' '.join(each.refused.split())[:200]}")


def _judge_case(made: Score, each: Recorded) -> None:
    found = errors(each.request, each.provider)
    if {SENSES.get(rule, rule) for rule in found} != set(each.expected or []):
        made.wrong.append(f"{each.place} ({each.why}): {_told(found) or 'nothing was found'}")


def _try(made: Score, mutation: Mutation, taken: Sequence[Recorded]) -> None:
    """Breaks some of the requests that were taken, from the beginning of the file to its end."""
    broken = [(each, request) for each in taken if (request := mutation.of(each.request)) is not None]
    chosen = list(_spread(broken, _TIMES))
    missed = [each.place for each, request in chosen if not errors(request, each.provider)]
    made.kinds += bool(chosen)
    made.mutated += len(chosen)
    made.found += len(chosen) - len(missed)
    if missed:
        made.missed.append(
            f"{mutation.name} ({len(missed)} of {len(chosen)}, such as {missed[0]}): {mutation.source}"
        )
    if not chosen:
        made.missed.append(f"{mutation.name}: no request could be broken so")


def _spread(
    items: Sequence[tuple[Recorded, dict[str, object]]], times: int
) -> Iterator[tuple[Recorded, dict[str, object]]]:
    step = max(1, len(items) // times)
    yield from items[::step][:times]


def _told(found: dict[str, str]) -> str:
    return "; ".join(f"{rule}: {message}" for rule, message in found.items())


def _row(name: object, *cells: object) -> str:
    return f"{name!s:<18}" + "".join(f"{cell!s:>10}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
