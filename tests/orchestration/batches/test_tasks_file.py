"""Files of tasks: what they may say, what a matrix makes of them, and every problem at its place."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from cardbox_cli.errors import BadRequest, InvalidInput
from cardbox_cli.limits import Limit
from cardbox_cli.model.handwritten.tasks import ForkJoin
from cardbox_cli.orchestration.tasks_file import read_tasks

Read = Callable[..., ForkJoin]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a file of tasks that lies beside docs/a.md and docs/b.md."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("Second.")
    (tmp_path / "docs" / "a.md").write_text("First, ${x}.")

    def read(text: str, *, lines: bool = False, limit: int = 8) -> ForkJoin:
        return read_tasks(dedent(text), "tasks.yaml", folder=tmp_path, limit=limit, lines=lines)

    return read


def test_a_task_without_a_matrix_is_unchanged(read: Read) -> None:
    asked = read("""
        fail_fast: true
        deadline_seconds: 60
        tasks:
          - {target_strategy: new, target_ref: clerk, instruction: 'Keep ${this}.'}
    """)
    assert (asked.fail_fast, asked.deadline_seconds) == (True, 60)
    assert [task.instruction for task in asked.tasks] == ["Keep ${this}."]


def test_a_matrix_makes_a_task_for_each_combination_in_order(read: Read, tmp_path: Path) -> None:
    asked = read("""
        matrix:
          doc: {glob: docs/*.md}
          tongue: [German, 3]
        tasks:
          - target_strategy: new
            target_ref: clerk-${tongue}
            instruction: "${doc.name} into ${tongue}, not $${doc}: ${doc.text}"
    """)
    assert [(task.target_ref, task.instruction) for task in asked.tasks] == [
        ("clerk-German", "a.md into German, not ${doc}: First, ${x}."),
        ("clerk-3", "a.md into 3, not ${doc}: First, ${x}."),
        ("clerk-German", "b.md into German, not ${doc}: Second."),
        ("clerk-3", "b.md into 3, not ${doc}: Second."),
    ]
    whole = read(
        "matrix: {d: {glob: '**/a.md'}}\ntasks: [{target_strategy: new, target_ref: c, instruction: '${d}'}]"
    )
    assert whole.tasks[0].instruction == str(tmp_path / "docs" / "a.md")


def test_each_json_line_is_a_task(read: Read) -> None:
    line = '{"target_strategy": "reuse", "target_ref": "clerk", "instruction": "Go."}'
    assert len(read(f"{line}\n\n{line}\n", lines=True).tasks) == 2
    with pytest.raises(InvalidInput) as told:
        read(f'{line}\n{{"target_strategy": "reuse", "target_ref": 3}}\n{{oops\n', lines=True)
    assert told.value.message.splitlines() == [
        "tasks.yaml: 3 problems",
        "tasks.yaml:2:1: tasks[1].target_ref: expected a string, found the number 3",
        "tasks.yaml:2:1: tasks[1]: the key 'instruction' is missing",
        "tasks.yaml:3:2: tasks[2]: not JSON: Expecting property name enclosed in double quotes",
    ]


def test_combinations_are_counted_before_they_are_created(read: Read) -> None:
    values = ", ".join(map(str, range(100)))
    matrix = "".join(f"  v{number}: [{values}]\n" for number in range(8))
    with pytest.raises(BadRequest, match=r"got=10000000000000000, max="):
        read(f"tasks:\n- {{target_strategy: new, target_ref: a, instruction: b}}\nmatrix:\n{matrix}")


def test_more_tasks_than_the_limit_are_refused_before_a_file_is_read(read: Read) -> None:
    many = "matrix: {n: [1, 2, 3], m: [1, 2, 3]}\ntasks: [{target_strategy: new, target_ref: c, instruction: '${n}'}]"
    with pytest.raises(BadRequest, match=r"got=9, max=8"):
        read(many)
    assert len(read(many, limit=9).tasks) == 9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tasks: []", "tasks.yaml:1: tasks: must not be empty"),
        ("fail_fast: true", "tasks.yaml:1: the key 'tasks' is missing"),
        (
            "tasks: [{target_strategy: clone, target_ref: c, instruction: x, contxt_box_id: b}]",
            "tasks[0].contxt_box_id: unknown key; did you mean 'context_box_id'?",
        ),
        (
            "tasks: [{target_strategy: old, target_ref: c, instruction: x}]",
            "tasks[0].target_strategy: expected 'new', 'reuse' or 'clone', found the string 'old'",
        ),
        ("deadline_seconds: 0\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "must be a number of seconds above 0"),
        ("deadline_seconds: .nan\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "deadline_seconds"),
        ("matrix: {d: {glob: no/*.md}}\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "matrix.d.glob: no file in "),
        ("matrix: {d: {glob: docs/*, x: 1}}\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "with no other key"),
        ("matrix: {d: []}\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "matrix.d: is empty, so there would be no task"),
        ("matrix: {d: [true]}\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "matrix.d[0]: expected a string or a number, found true"),
        ("matrix: {2d: [a]}\ntasks: [{target_strategy: new, target_ref: c, instruction: x}]", "does not begin with a digit"),
        ("matrix: {dir: [a]}\ntasks: [{target_strategy: new, target_ref: c, instruction: '${dri}'}]", "tasks[0].instruction: unknown variable 'dri'; did you mean 'dir'?"),
        ("matrix: {d: [a]}\ntasks: [{target_strategy: new, target_ref: c, instruction: '${d.text}'}]", "unknown variable 'd.text': only files have .name and .text"),
        ("matrix: {d: ['']}\ntasks: [{target_strategy: new, target_ref: c, instruction: '${d}'}]", "tasks[0].instruction: is blank if d is ''"),
    ],
)  # fmt: skip
def test_an_error_is_reported_with_its_position(read: Read, text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as found:
        read(text)
    assert told in found.value.message


def test_all_problems_are_reported_at_once(read: Read, tmp_path: Path) -> None:
    (tmp_path / "docs" / "c.md").write_bytes(b"\xff")
    with pytest.raises(InvalidInput) as told:
        read("""
            matrix: {doc: {glob: docs/c.md}}
            tasks:
              - {target_strategy: new, target_ref: '${x}', instruction: '${doc.text}'}
        """)
    lines = told.value.message.splitlines()
    assert lines[0] == "tasks.yaml: 3 problems"
    assert any("is not UTF-8 (byte 0)" in line and line.startswith("tasks.yaml:4:") for line in lines)


def test_a_huge_matrix_is_refused_at_once(read: Read) -> None:
    values = ", ".join(map(str, range(1000)))
    variables = "".join(f"  v{number}: [{values}]\n" for number in range(8))
    text = f"matrix:\n{variables}tasks: [{{target_strategy: new, target_ref: c, instruction: x}}]"
    with pytest.raises(BadRequest, match=rf"got={1000**8}, max=8"):
        read_tasks(text, "tasks.yaml", folder=Path(), limit=8)


@pytest.mark.parametrize(
    "text",
    [
        """
        matrix: {note: {glob: '*.txt'}, number: [1, 2, 3]}
        tasks: [{target_strategy: new, target_ref: a, instruction: 'Read ${note.text}'}]
        """,
        """
        matrix: {note: {glob: '*.txt'}}
        tasks: [{target_strategy: new, target_ref: a, instruction: '${note.text}${note.text}${note.text}'}]
        """,
    ],
    ids=["many tasks", "one task"],
)
def test_the_total_size_of_all_tasks_is_limited(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("cardbox_cli.orchestration.tasks_file.INPUT_SIZE", Limit(1, "MiB", ""))
    (tmp_path / "a.txt").write_text("x" * 300_000)
    assert read(text).tasks
    (tmp_path / "a.txt").write_text("x" * 400_000)
    with pytest.raises(InvalidInput, match="together are larger than 1 MiB"):
        read(text)
