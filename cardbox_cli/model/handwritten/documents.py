"""Values that people write by hand: the positions of their parts, and their problems.

This module collects problems and makes one error that names all of them. `yaml_files` parses YAML, and
`validation` checks the contents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.text.error_messages import ValuePath, describe_value, format_path

MAX_DEPTH = 32
"""The maximum nesting of lists and mappings in hand-written values."""


class FilePosition(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    where: ValuePath
    message: str
    mark: FilePosition | None = None


@dataclass(frozen=True, slots=True)
class HandwrittenDocument:
    """A JSON-like value and the problems of reading it.

    `marks` maps the path of every key and list item to its position. It is empty if the value is not from a
    file. If `whole` is False, reading was aborted and `value` must not be used.
    """

    source: str
    value: object
    marks: Mapping[ValuePath, FilePosition] = field(default_factory=dict)
    problems: Sequence[DocumentProblem] = ()
    whole: bool = True

    def mark(self, where: ValuePath) -> FilePosition | None:
        """Return the position of `where`, or of the nearest parent that has one."""
        while where and where not in self.marks:
            where = where[:-1]
        return self.marks.get(where)


def document_from_value(value: object, source: str) -> HandwrittenDocument:
    """Return a document with a copy of a Python caller's value in plain JSON types. Tuples become lists.

    Values that JSON cannot represent, keys that are not strings, and too deep nesting are its problems.
    """
    problems: list[DocumentProblem] = []
    return HandwrittenDocument(source, _plain(value, (), problems), problems=problems)


def _plain(value: object, where: ValuePath, problems: list[DocumentProblem]) -> Any:
    if len(where) > MAX_DEPTH:
        problems.append(DocumentProblem(where[:MAX_DEPTH], f"nested more than {MAX_DEPTH} levels deep"))
    elif isinstance(value, Mapping):
        odd_keys = (describe_value(key) for key in value if not isinstance(key, str))
        problems += [DocumentProblem(where, f"a key must be a string, found {key}") for key in odd_keys]
        named = [(key, item) for key, item in value.items() if isinstance(key, str)]
        return {key: _plain(item, (*where, key), problems) for key, item in named}
    elif isinstance(value, list | tuple):
        return [_plain(item, (*where, index), problems) for index, item in enumerate(value)]
    else:
        try:
            exact_json.check_storable(value)
        except exact_json.Unstorable as reason:
            problems.append(DocumentProblem(where, reason.what))
        else:
            return value
    return None


def document_error(
    kind: type[InvalidInput], source: str, problems: Sequence[DocumentProblem], *, hint: str | None = None
) -> InvalidInput:
    """Return the error that names all `problems` of `source` in order. There must be at least one.

    One problem reads `FILE:LINE: path: what`. Several are counted, and then listed with their columns.
    """
    problems = sorted(problems, key=lambda problem: problem.mark or FilePosition(0, 0))
    if len(problems) == 1:
        message = format_problem(source, problems[0])
    else:
        lines = [format_problem(source, problem, columns=True) for problem in problems]
        message = "\n".join([f"{source}: {len(problems)} problems", *lines])
    return kind(
        message, hint=hint, details={"problems": [describe_problem(source, each) for each in problems]}
    )


def format_problem(source: str, problem: DocumentProblem, *, columns: bool = False) -> str:
    """Return `FILE:LINE: path: what`, or `FILE:LINE:COLUMN: path: what`."""
    place: list[object] = [source]
    if problem.mark:
        place += problem.mark if columns else [problem.mark.line]
    path = [format_path(problem.where)] if problem.where else []
    return ": ".join([":".join(map(str, place)), *path, problem.message])


def describe_problem(source: str, problem: DocumentProblem) -> dict[str, Any]:
    """Return the problem as the details of an error list it."""
    line, column = problem.mark or (None, None)
    place = {"file": source, "line": line, "column": column, "path": format_path(problem.where)}
    return {**place, "message": problem.message}
