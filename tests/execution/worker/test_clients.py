"""Clients that stay, as real processes: what they answer, and that none of them can hold us."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Timer

import pytest

from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.execution.worker.model_clients import ModelClients
from tests.crash.processes import until

Start = Callable[..., "Asking"]
GRACE = "cardbox_cli.execution.worker.model_clients._CLIENT_TIMEOUT_SECONDS"

# What a client is unless a test says otherwise: it answers with its number and the request.
CLIENT = """
import json, os, sys, time
def say(**line): print(json.dumps(line), flush=True)
say(ready=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "cancel" in asked: continue
    request, turn = asked["request"], asked["turn"]
    {body}
"""


class Asking:
    """Clients of one program, and how they are asked."""

    def __init__(self, clients: ModelClients) -> None:
        self.clients = clients

    def __call__(
        self, request: object = 1, *, timeout: float = 120, stop: Event | None = None
    ) -> CommandOutcome:
        body = json.dumps(request).encode()
        return self.clients.ask(body, {"CBX_STEP": "s1"}, timeout=timeout, stop=stop or Event())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ModelClients] = []

    def start(
        body: str = "say(answer=[os.getpid(), request])", *, program: str = CLIENT, **options: int
    ) -> Asking:
        file = tmp_path / f"client-{len(started)}.py"
        file.write_text(program.replace("{body}", body.replace("\n", "\n    ")))
        environment = {"FOLDER": str(tmp_path), "PATH": os.environ["PATH"]}
        clients = ModelClients(f"exec '{sys.executable}' '{file}'", environment, **options)
        started.append(clients)
        return Asking(clients)

    yield start
    for clients in started:
        clients.close()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_client_answers_several_requests(start: Start) -> None:
    ask = start()
    first, second = ask("a"), ask({"b": [1.50, "\n"]})
    assert first.succeeded
    pid, echoed = json.loads(first.stdout)
    assert echoed == "a"
    assert json.loads(second.stdout) == [pid, {"b": [1.5, "\n"]}]


@pytest.mark.parametrize(
    ("body", "stdout"),
    [
        ('say(answer="a text\\n")', b"a text\n"),
        (
            'print(\'{"answer": {"n": 1.50,  "x": "\\\\u0041"}}\', flush=True)',
            b'{"n": 1.50,  "x": "\\u0041"}',
        ),
        ("say(answer=turn['CBX_STEP'])", b"s1"),
        ("say(answer='x' * 3_000_000)", b"x" * 3_000_000),
        # It has put cards into the box itself.
        ("say(answer=None)", b""),
    ],
)
def test_the_answer_of_a_client_becomes_the_output(start: Start, body: str, stdout: bytes) -> None:
    assert start(body)().stdout == stdout


def test_an_indented_request_is_sent_as_one_line(start: Start) -> None:
    asked = start().clients.ask(b'{\n  "a": "b\\nc"\n}', {}, timeout=30, stop=Event())
    assert json.loads(asked.stdout)[1] == {"a": "b\nc"}


def test_an_error_fails_only_its_request(start: Start) -> None:
    ask = start("say(error='no key') if request == 1 else say(answer=str(os.getpid()))")
    pid = ask(2).stdout
    failed = ask(1)
    assert (failed.succeeded, failed.exit_code, failed.stderr) == (False, 1, "no key\n")
    assert ask(2).stdout == pid


def test_stderr_output_belongs_to_its_request(start: Start) -> None:
    ask = start("print('about', request, file=sys.stderr, flush=True); say(answer='')", keep_stderr=6)
    assert ask(11).stderr == "ut 11\n"
    second = ask(7)
    assert (second.stderr, second.stderr_bytes, second.stderr_is_cut) == ("out 7\n", 8, True)


@pytest.mark.parametrize(
    ("body", "exit_code"),
    [("sys.exit(4)", 4), ("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("os.close(1); os._exit(3)", 3)],
)
def test_a_client_that_dies_fails_its_request_and_is_replaced(
    start: Start, body: str, exit_code: int
) -> None:
    ask = start(f"if request == 'die': {body}\nsay(answer='well')")
    assert ask().stdout == b"well"
    died = ask("die")
    assert (died.succeeded, died.exit_code, died.stdout) == (False, exit_code, b"")
    assert ask().stdout == b"well"


@pytest.mark.parametrize(
    ("answer", "told"), [('{"answer": "x"}', None), ("{", "expected the client to print"), ("", "")]
)
def test_the_last_line_of_a_client_needs_no_newline(start: Start, answer: str, told: str | None) -> None:
    ran = start(f"sys.stdout.write({answer!r}); sys.stdout.flush(); sys.exit(0)")()
    if told is None:
        assert (ran.succeeded, ran.stdout) == (True, b"x")
    else:
        assert told in ran.stderr
        assert ran.stdout == b""


def test_a_client_that_died_while_idle_is_replaced(start: Start) -> None:
    ask = start("say(answer=str(os.getpid()))")
    pid = int(ask().stdout)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid) or "Z" in Path(f"/proc/{pid}/stat").read_text())
    assert int(ask().stdout) != pid


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no such model')", "no such model\n"),
        (
            "print('Loading…', flush=True); input()",
            "expected the client to print {\"ready\": true}, found 'Loading…'",
        ),
        (
            "print('{\"ready\": false}', flush=True); input()",
            'expected the client to print {"ready": true}, found \'{"ready": false}\'',
        ),
    ],
)
def test_a_client_that_does_not_start_fails_the_request(start: Start, program: str, message: str) -> None:
    failed = start(program=program)()
    assert not failed.succeeded
    assert message in failed.stderr


def test_a_client_that_never_says_ready_is_told_so(start: Start) -> None:
    late = start(program="input()")(timeout=0.5)
    assert late.timed_out
    assert 'expected the client to print {"ready": true}, but it printed nothing' in late.stderr


@pytest.mark.parametrize(
    "line",
    [
        *("done", "[1]", '{"answer": ', '{"error": 1}', "", '{"id": "1", "answer": 1}'),
        # Deeper than anybody reads, and a text with half a surrogate pair.
        pytest.param('{"answer": ' + "[" * 20_000, id="deep"),
        '{"answer": "\\ud800"}',
    ],
)
def test_an_invalid_line_is_reported_and_its_client_replaced(start: Start, line: str) -> None:
    ask = start(f"print({line!r}, flush=True) if request == 'odd' else say(answer=str(os.getpid()))")
    pid = int(ask().stdout)
    failed = ask("odd")
    assert (failed.succeeded, failed.exit_code) == (False, 1)
    assert (
        f'expected the client to print {{"answer": …}} or {{"error": "…"}}, found {line[:200]!r}'
        in failed.stderr
    )
    assert is_gone(pid)
    assert int(ask().stdout) != pid


# At work for as long as nobody says otherwise.
PATIENT = """
import json, os, select, sys
def say(**line): print(json.dumps(line), flush=True)
say(ready=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "cancel" in asked: continue
    if asked["request"] == "wait":
        open(os.environ["FOLDER"] + "/at-work", "w").close()
        assert json.loads(sys.stdin.readline()) == {"cancel": True}
        say(error="cancelled")
    else:
        say(answer=str(os.getpid()))
"""


def test_a_client_that_confirms_a_cancellation_keeps_running(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 120)
    ask = start(program=PATIENT)
    pid = ask().stdout
    late = ask("wait", timeout=0.5)
    assert (late.timed_out, late.succeeded, late.stdout) == (True, False, b"")
    assert ask().stdout == pid


def test_a_stop_cancels_the_request(start: Start, tmp_path: Path) -> None:
    ask, stop = start(program=PATIENT), Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, "wait", stop=stop)
        until((tmp_path / "at-work").exists)
        stop.set()
        stopped = asked.result(timeout=120)
    assert (stopped.stopped, stopped.timed_out) == (True, False)


def test_a_client_that_ignores_a_cancellation_is_killed_with_its_children(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 0.2)
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['setsid', 'sleep', '100'])\n"
        "open(os.environ['FOLDER'] + '/new', 'w').write(str(child.pid))\n"
        "os.rename(os.environ['FOLDER'] + '/new', os.environ['FOLDER'] + '/pid')\n"
        "time.sleep(100)"
    )
    ask = start(
        f"if request == 'hang':\n  {body.replace(chr(10), chr(10) + '  ')}\nsay(answer=str(os.getpid()))"
    )
    pid = int(ask().stdout)
    for timeout in (0.5, 5, 50):
        assert ask("hang", timeout=timeout).timed_out
        if (tmp_path / "pid").exists():
            break
    assert is_gone(pid)
    until(lambda: is_gone(int((tmp_path / "pid").read_text())))
    assert int(ask().stdout) != pid


def test_a_client_that_prints_endlessly_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cardbox_cli.execution.worker.model_clients.MAX_OUTPUT", 100_000)
    ask = start("while request == 'much': sys.stdout.write('x' * 1000)\nsay(answer='little')")
    assert ask().stdout == b"little"
    assert ask("much").too_long
    assert ask().stdout == b"little"


def test_a_client_is_replaced_after_its_maximum_number_of_requests(start: Start) -> None:
    ask = start("say(answer=str(os.getpid()))", requests=2)
    first, second, third = (int(ask().stdout) for _ in range(3))
    assert first == second != third
    assert is_gone(first)


def test_each_concurrent_request_has_its_own_client(start: Start, tmp_path: Path) -> None:
    wait = "while len(os.listdir(os.environ['FOLDER'] + '/here')) < 3: time.sleep(0.01)"
    ask = start(
        f"open(f\"{{os.environ['FOLDER']}}/here/{{request}}\", 'w')\n{wait}\nsay(answer=str(os.getpid()))"
    )
    (tmp_path / "here").mkdir()
    with ThreadPoolExecutor(3) as pool:
        pids = {ran.stdout for ran in pool.map(ask, range(3))}
    assert len(pids) == 3
    assert ask(4).stdout in pids


def test_no_client_outlives_the_worker(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRACE, 120)
    ask = start("say(answer=str(os.getpid()))")
    pid = int(ask().stdout)
    began = time.monotonic()
    ask.clients.close()
    assert is_gone(pid)
    # It ends by itself when its input does.
    assert time.monotonic() - began < 120


def test_a_stop_does_not_wait_for_a_client_that_never_starts(start: Start) -> None:
    stop = Event()
    timer = Timer(0.3, stop.set)
    timer.start()
    assert start(program="import time; time.sleep(100)")(stop=stop).stopped
    timer.join()


def test_the_answer_of_a_client_that_exits_counts(start: Start) -> None:
    ask = start('os.write(1, b\'{"answer": "bye"}\\n\'); os._exit(0)', requests=1)
    assert [ask().stdout for _ in range(20)] == [b"bye"] * 20


@pytest.mark.parametrize("more", ["say(answer='of the first')", "sys.stdout.write('{'); sys.stdout.flush()"])
def test_unsolicited_output_does_not_answer_the_next_request(start: Start, more: str) -> None:
    """Else the text of one turn, which a client did not quote, would answer for another's model."""
    ask = start(
        f"say(answer=request)\nif request == 'first':\n    {more}\n    open(os.environ['FOLDER'] + '/said', 'w')"
    )
    assert ask("first").stdout == b"first"
    until(lambda: Path(ask.clients._environment["FOLDER"], "said").exists())
    assert ask("second").stdout == b"second"


def test_a_line_that_is_not_utf8_is_invalid(start: Start) -> None:
    ask = start("os.write(1, b'{\"answer\": \"\\xff\"}\\n') if request == 'odd' else say(answer='well')")
    assert 'expected the client to print {"answer": …}' in ask("odd").stderr
    assert ask().stdout == b"well"


def test_a_late_answer_with_an_id_does_not_answer_another_request(start: Start) -> None:
    """However late: here the second request has been read before the first is answered once more."""
    ask = start(
        "if request == 'second': say(id=1, answer='of the first')\nsay(id=asked['id'], answer=request)"
    )
    assert [ask(each).stdout for each in ("first", "second", "third")] == [b"first", b"second", b"third"]


@pytest.mark.parametrize("number", [0, 3, -1, 10**30])
def test_an_answer_with_an_unknown_id_fails_the_request(start: Start, number: int) -> None:
    ask = start(f"say(id={number} if request == 'odd' else asked['id'], answer=request)")
    assert ask("well").stdout == b"well"
    odd = ask("odd")
    assert (odd.succeeded, odd.stdout) == (False, b"")
    assert "the last id is 2" in odd.stderr or "expected" in odd.stderr
    assert ask("well").stdout == b"well"
