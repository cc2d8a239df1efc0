"""The whole command tree with odd values for everything that it takes: no command crashes, none hangs.

Each command line has what its command requires, and some of what it may have; the values are ids that are there
and texts, numbers and files that are odd. `FUZZ_SECONDS` says for how long, `FUZZ_SEED` which lines.
"""

import io
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from cardbox_cli.cli.command_table import root
from cardbox_cli.cli.tree import LazyGroup
from cardbox_cli.execution.runtime import Runtime
from tests.conftest import Cbx
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked

# What one command line may take. Those that wait or watch get as much as they are given.
PATIENCE = 20
# Commands that leave this process, wait for a person, or touch the server that other tests use.
LEFT_OUT = {
    "demo",
    "shell",
    "db psql",
    "db stop",
    "db start",
    "db destroy",
    "db restore",
    "mcp",
    "serve",
    "worker run",
    "turn watch",
    "config edit",
}
# Options that make a command wait for what nobody does, or open a program.
NEVER = {"--watch", "--follow", "--help", "--edit", "--wait", "--database-url", "--debug"}

ODD_TEXTS = [
    *("", " ", "-", "--", "@", "@-", "@last", "@/dev/null", "@nowhere", "=", ":=", "k=", "k:=", "k=v", "k:=1", "k:=[", "=v"),
    *("é" * 300, "x" * 5000, "\x1b[2J", "\u202e", "a\nb", "\t", "\r", "\x85", "\U000e0041", "\ufeff", "\ufffe"),
    *("\udcff", "a\ud800b", os.fsdecode(b"caf\xe9"), "'; --", "%", "%s", "%(x)s", "{}", "{0}", "\\", "$HOME", "*", "..", "/"),
    *("null", "true", "[]", '{"a": 1}', '{"a"', "[" * 5000, '{"a": 1e5000}', '{"a": "\\u0000"}', "NaN", "1e5000"),
    *("/dev/null", "/", "/proc/nowhere/x", ".", "/proc/self/mem", "a" * 300 + ".yaml", "x:desc", "size,,age", ":", ","),
]  # fmt: skip
ODD_NUMBERS = [
    *("0", "1", "-1", "7", "2147483648", "-2147483649", "9223372036854775808", "9" * 29, "-" + "9" * 29, "9" * 5000),
    *("0.1", "1e3", "1e400", "-0", "nan", "inf", "-inf", "٣", "1_0", "0x10", " 1 ", "", "1h", "90m", "9" * 30 + "d"),
]  # fmt: skip
ODD_TIMES = [
    "2026-11-22",
    "2026-11-22T09:30:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "now",
    "1h",
]
FILES = {
    "empty.yaml": b"",
    "bytes.yaml": b"\xff\xfe\x00",
    "deep.json": b"[" * 5000,
    "number.json": b'{"a": 1e5000}',
    "recipe.yaml": b"description: x\nsections: []\n",
    "profile.yaml": b"name: clerk\nworker_target: w\n",
    "chat.json": b'[{"role": "user", "content": "hi"}]',
    "lines.jsonl": b'{"role": "user", "content": "hi"}\n{"role": 1}\n',
}


class Hung(BaseException):
    """A command line took longer than PATIENCE."""


@contextmanager
def bounded() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def commands(group: LazyGroup, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, LazyGroup):
            yield from commands(command, *names, name)
        elif command is not None and " ".join((*names, name)) not in LEFT_OUT:
            yield (*names, name), command


class Lines:
    """Makes command lines. `ids` are those that are there."""

    def __init__(self, seed: int, ids: list[str]) -> None:
        self._random = random.Random(seed)
        self._ids = ids

    def line(self, names: tuple[str, ...], command: click.Command) -> list[str]:
        words = list(names)
        for parameter in self._random.sample(command.params, len(command.params)):
            needed = parameter.required or "--timeout" in parameter.opts
            if not set(parameter.opts) & NEVER and (needed or self._random.random() < 0.2):
                words += self._given(parameter)
        return words

    def _given(self, parameter: click.Parameter) -> list[str]:
        if isinstance(parameter, click.Option) and parameter.is_flag:
            return [self._random.choice(parameter.opts)]
        count = self._random.randint(1, 3) if parameter.multiple or parameter.nargs == -1 else 1
        values = [self._value(parameter) for _ in range(count)]
        if isinstance(parameter, click.Argument):
            return values
        name = self._random.choice(parameter.opts)
        return [word for value in values for word in (name, value)]

    def _value(self, parameter: click.Parameter) -> str:
        if "--timeout" in parameter.opts:
            return self._random.choice(["0", "0.1", "nan", "-1", "9" * 30])
        if isinstance(parameter.type, click.Choice) and self._random.random() < 0.8:
            return str(self._random.choice(parameter.type.choices))
        kinds: list[list[str]] = [ODD_TEXTS, ODD_NUMBERS, ODD_TIMES, self._ids, list(FILES)]
        if isinstance(parameter.type, (click.types.IntParamType, click.types.FloatParamType)):
            kinds = [ODD_NUMBERS, ODD_NUMBERS, ["0", "1", "2"]]
        elif isinstance(parameter, click.Argument):
            kinds += [self._ids] * 3
        return self._random.choice(self._random.choice(kinds))


@pytest.fixture
def ids(runtime: Runtime, ask: Asked, context_box: str, cbx: Cbx) -> list[str]:
    """What is there: a turn that waits for a call, one that is queued, cards, boxes, agents, a tool."""
    ask()
    work = Desk(runtime).waiting("call_1")
    second = ask()
    cbx("card", "add", "--type", "task.instruction", "--text", "x", "--id", "card-1")
    names = [work.fence.agent_turn_id, work.row.inbox_id, second.agent_turn_id, context_box, "card-1"]
    return [*map(str, names), "clerk", "scribe", "call_1", "single", "p", context_box[:6]]


def remains(code: int, err: str) -> bool:
    """Whether a command line did what none may."""
    return code == 1 or "Traceback" in err or "this is a bug" in err


@pytest.mark.soak
def test_no_command_line_crashes_or_hangs(
    cbx: Cbx, ids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        Path(name).write_bytes(data)
    for name, value in (("CBX_PAGER", ""), ("EDITOR", "true"), ("VISUAL", "true")):
        monkeypatch.setenv(name, value)
    seed = int(os.environ.get("FUZZ_SEED", random.randrange(10**9)))
    lines = Lines(seed, ids)
    tree = list(commands(root()))
    ends = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "120"))
    failures: dict[tuple[str, str], Any] = {}
    ran = 0
    while time.monotonic() < ends:
        for names, command in tree:
            words = lines.line(names, command)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}'), encoding="utf-8"))
            try:
                with bounded():
                    answer = cbx(*words)
            except Hung:
                failures.setdefault((" ".join(names), "hung"), words)
                continue
            ran += 1
            if remains(answer.code, answer.err):
                failures.setdefault((" ".join(names), answer.err.strip().splitlines()[0][:80]), words)
    told = [f"{what}: {words}"[:1500] for what, words in failures.items()]
    assert not told, "\n".join([f"FUZZ_SEED={seed}", *told])
    assert ran > len(tree)
