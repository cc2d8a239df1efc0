"""Files of tasks, in YAML or as JSON lines, and the matrix that makes many tasks of one.

In a task, `${name}` becomes a value of the matrix. If the value is a file, `${name.text}` becomes its text,
and `${name.name}` its name without folders. `$${` becomes `${`. `model/handwritten/tasks.py` defines the
fields of a task.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cardbox_cli.errors import BadRequest, InvalidInput
from cardbox_cli.files import open_to_read
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.documents import (
    DocumentProblem,
    FilePosition,
    HandwrittenDocument,
    document_error,
    document_from_value,
)
from cardbox_cli.model.handwritten.tasks import ForkJoin, Task, TasksFile
from cardbox_cli.model.handwritten.validation import fit
from cardbox_cli.model.handwritten.yaml_files import read_yaml
from cardbox_cli.orchestration.batch_creation import refuse_too_many
from cardbox_cli.text.error_messages import ValuePath, describe_value, did_you_mean

_VARIABLE = re.compile(r"\$(?P<escaped>\$)?\{(?P<name>\w+)(?:\.(?P<part>\w+))?\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EXPECTED = "expected a list of values or {glob: PATTERN}"
_HINT = "`cbx fork-join --help` has an example of a file"


class _File(str):
    """A path that a glob of the matrix matches."""


_Value = str | _File
_Values = Mapping[str, _Value]


def read_tasks(text: str, source: str, *, folder: Path, limit: int, lines: bool = False) -> ForkJoin:
    """Read the tasks of a file and expand its matrix. If `lines` is True, the file is JSON lines.

    Glob patterns are relative to `folder`. Raises InvalidInput with all problems and their positions, or if
    the expanded tasks exceed INPUT_SIZE. Raises BadRequest for more tasks than `limit`.
    """
    document = _read_lines(text, source) if lines else read_yaml(text, source)
    asked = fit(TasksFile, document, refuse_with=InvalidInput, hint=_HINT)
    filled = _Matrix(asked, document, folder, limit).tasks()
    return ForkJoin(tasks=filled, fail_fast=asked.fail_fast, deadline_seconds=asked.deadline_seconds)


def _read_lines(text: str, source: str) -> HandwrittenDocument:
    tasks: list[Any] = []
    marks: dict[ValuePath, FilePosition] = {("tasks",): FilePosition(1, 1)}
    problems: list[DocumentProblem] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = ("tasks", len(tasks))
        marks[where] = FilePosition(number, 1)
        try:
            tasks.append(exact_json.read(line))
        except json.JSONDecodeError as exc:
            problems.append(DocumentProblem(where, f"not JSON: {exc.msg}", FilePosition(number, exc.colno)))
            tasks.append(None)
        except ValueError as exc:
            problems.append(DocumentProblem(where, str(exc), FilePosition(number, 1)))
            tasks.append(None)
    plain = document_from_value({"tasks": tasks}, source)
    return HandwrittenDocument(source, plain.value, marks=marks, problems=[*problems, *plain.problems])


class _Matrix:
    """The expansion of one file's tasks for every combination of its variables."""

    def __init__(self, asked: TasksFile, document: HandwrittenDocument, folder: Path, limit: int) -> None:
        self._asked = asked
        self._document = document
        self._folder = folder
        self._limit = limit
        self._problems: list[DocumentProblem] = []
        self._texts: dict[str, str] = {}
        self._left = INPUT_SIZE.value << 20

    def tasks(self) -> list[Task]:
        """Return each task for each combination, in file order. The last variable changes fastest."""
        if not self._asked.matrix:
            refuse_too_many(len(self._asked.tasks), self._limit)
            return self._asked.tasks
        values = {name: self._values(name, given) for name, given in self._asked.matrix.items()}
        self._check()
        # Count before expanding, because a short file may define more tasks than fit into memory.
        count = math.prod(len(each) for each in values.values())
        refuse_too_many(len(self._asked.tasks) * count, self._limit)
        combinations = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        filled = [
            self._fill(task, ("tasks", index), each)
            for index, task in enumerate(self._asked.tasks)
            for each in combinations
        ]
        self._check()
        return filled

    def _check(self) -> None:
        if self._problems:
            raise document_error(InvalidInput, self._document.source, self._problems, hint=_HINT)

    def _problem(self, where: ValuePath, sentence: str) -> None:
        problem = DocumentProblem(where, sentence, self._document.mark(where))
        if problem not in self._problems:
            self._problems.append(problem)

    # --- values

    def _values(self, name: str, given: Any) -> Sequence[_Value]:
        where = ("matrix", name)
        if not _NAME.fullmatch(name):
            rule = "a variable's name has letters, digits and _, and does not begin with a digit"
            self._problem(where, rule)
        if isinstance(given, dict):
            return self._matching_files(given, where)
        if given == []:
            self._problem(where, "is empty, so there would be no task")
            return []
        if not isinstance(given, list):
            self._problem(where, f"{_EXPECTED}, found {describe_value(given)}")
            return []
        for index, value in enumerate(given):
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                problem = f"expected a string or a number, found {describe_value(value)}"
                self._problem((*where, index), problem)
        return [str(value) for value in given]

    def _matching_files(self, given: dict[str, Any], where: ValuePath) -> Sequence[_Value]:
        pattern = given.get("glob")
        if set(given) != {"glob"} or not isinstance(pattern, str) or not pattern:
            self._problem(where, f"{_EXPECTED}, with no other key")
            return []
        try:
            folder = Path("/") if pattern.startswith("/") else self._folder
            paths = sorted(path for path in folder.glob(pattern.lstrip("/")) if path.is_file())
        except (ValueError, NotImplementedError, OSError) as exc:
            self._problem((*where, "glob"), f"not a valid glob pattern: {exc}")
            return []
        if not paths:
            problem = f"no file in {str(self._folder)!r} matches the pattern {pattern!r}"
            self._problem((*where, "glob"), problem)
        return [_File(path) for path in paths]

    # --- filling in

    def _fill(self, task: Task, where: ValuePath, values: _Values) -> Task:
        texts = {
            key: self._replace(text, (*where, key), values)
            for key, text in task.model_dump().items()
            if isinstance(text, str)
        }
        for key in ("target_ref", "instruction"):
            if not texts[key].strip():
                given = ", ".join(f"{name} is {value!r}" for name, value in values.items())
                self._problem((*where, key), f"is blank if {given}")
        return task.model_copy(update=texts)

    def _replace(self, text: str, where: ValuePath, values: _Values) -> str:
        def find_value(match: re.Match[str]) -> str:
            if match["escaped"]:
                return match[0][1:]
            return self._count_text(self._value(match["name"], match["part"], where, values))

        return _VARIABLE.sub(find_value, self._count_text(text))

    def _count_text(self, text: str) -> str:
        """Return the text after counting it against the size limit. A short file may expand to very much."""
        self._left -= len(text)
        if self._left < 0:
            raise InvalidInput(
                f"the tasks of {self._document.source} together are larger than {INPUT_SIZE}",
                hint="put file names instead of texts into the tasks, or make several batches",
            )
        return text

    def _value(self, name: str, part: str | None, where: ValuePath, values: _Values) -> str:
        if name not in values:
            suggestion = did_you_mean(name, values) or f"; variables are {', '.join(values)}"
            self._problem(where, f"unknown variable {name!r}{suggestion}")
            return ""
        value = values[name]
        if part is None:
            return value
        if part not in ("name", "text") or not isinstance(value, _File):
            self._problem(where, f"unknown variable '{name}.{part}': only files have .name and .text")
            return ""
        if part == "name":
            return Path(value).name
        if value not in self._texts:
            self._texts[value] = self._read(value, where)
        return self._texts[value]

    def _read(self, path: str, where: ValuePath) -> str:
        limit = INPUT_SIZE.value << 20
        try:
            with open_to_read(Path(path)) as file:
                data = file.read(limit + 1)
            if len(data) > limit:
                raise BadRequest(f"is larger than {INPUT_SIZE}")
            text = data.decode("utf-8-sig")
            exact_json.check_storable(text)
        except OSError as exc:
            self._problem(where, f"the file {path!r} cannot be read: {exc.strerror}")
        except UnicodeDecodeError as exc:
            self._problem(where, f"the file {path!r} is not UTF-8 (byte {exc.start})")
        except BadRequest as exc:
            self._problem(where, f"the file {path!r} {exc.message}")
        except exact_json.Unstorable as exc:
            self._problem(where, f"the file {path!r}: {exc.what}")
        else:
            return text
        return "?"
