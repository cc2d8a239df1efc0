"""Turns from dispatch to deliverable by `cbx worker run`, with real clients, killed and paused workers too."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import PATIENCE, Shell, lines, succeed
from tests.conftest import PROJECT, Cbx, Result
from tests.crash.processes import until
from tests.databases import Databases
from tests.execution.worker.test_command import wait_for_end

CLIENT = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).parents[3] / 'examples/client.py'))}"
CALLING = f"""{CLIENT} --call lookup '{{"order": 7}}'"""

Dispatch = Callable[..., str]


@pytest.fixture
def dispatch(cbx: Cbx, add: Callable[..., str], tmp_path: Path) -> Dispatch:
    """Dispatch an instruction to an agent, `clerk` if none is named, who may call `lookup`; the turn's id."""
    profile = tmp_path / "clerk.yaml"
    profile.write_text("name: clerk\nsystem_prompt: You are a clerk.\nallowed_tools: [lookup]\n")
    succeed(cbx("profile", "import", str(profile)))

    def send(text: str = "Find the cause.", agent: str = "clerk") -> str:
        succeed(cbx("agent", "provision", agent, "--profile", "clerk"))
        box = succeed(cbx("box", "create", add(text), "-o", "id")).strip()
        return succeed(cbx("dispatch", "--agent", agent, "--context-box", box, "-o", "id")).strip()

    return send


@pytest.fixture
def shown(cbx: Cbx) -> Callable[[str], Any]:
    """A turn as `turn show` tells it."""
    return lambda turn: cbx("turn", "show", turn, "-o", "json").json()


@pytest.fixture
def said(cbx: Cbx) -> Callable[[str], list[str]]:
    """The types of the cards that a turn's output box holds."""

    def types(turn: str) -> list[str]:
        box = cbx("turn", "show", turn, "-o", "json").json()["output_box_id"]
        return [card["type"] for card in cbx("box", "show", box, "-o", "json").json()["cards"]]

    return types


def work(cbx: Cbx, command: str, *options: str) -> Result:
    return cbx(
        "worker",
        "run",
        "--trust-stored-commands",
        "--exec",
        command,
        "-o",
        "jsonl",
        *(options or ("--drain",)),
    )


def rests(result: Result) -> list[Any]:
    return [json.loads(line) for line in lines(result)]


def deliverable(cbx: Cbx, turn: str) -> str:
    card = cbx("turn", "show", turn, "-o", "json").json()["deliverable_card_id"]
    return str(cbx("card", "show", card, "-o", "json").json()["content"]["text"])


def deliverable_of(cbx: Cbx, turn: str) -> str:
    card = cbx("turn", "show", turn, "-o", "json").json()["deliverable_card_id"]
    return cbx("card", "show", card, "-o", "json").out


def test_a_client_answers_from_the_request(cbx: Cbx, dispatch: Dispatch, shown: Any) -> None:
    turn = dispatch("Find the cause.")
    [rest] = rests(work(cbx, CLIENT))
    assert rest == {
        "project_id": PROJECT,
        "agent_turn_id": turn,
        "agent_id": "clerk",
        "status": "ended",
        "end_status": "success",
        "error_code": None,
        "message": None,
        "deliverable_card_id": shown(turn)["deliverable_card_id"],
        "waiting_tool_call_ids": [],
        "steps": 1,
    }
    assert deliverable(cbx, turn) == "I read 2 messages. The last request was: Find the cause."
    [step] = shown(turn)["steps"]
    assert step["metadata"]["llm_usage"].keys() == {"prompt_tokens", "completion_tokens"}


def test_stored_commands_run_on_the_embedded_server_unless_root_owns_it(
    cbx: Cbx, dispatch: Dispatch, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root lends it an account, whose processes could have root run whatever they store."""
    monkeypatch.delenv("CBX_DATABASE_URL")
    monkeypatch.setenv("CBX_HOME", str(databases.server.home))
    monkeypatch.setenv("CBX_PROJECT", "stored")
    succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
    succeed(cbx("tool", "add", "lookup", "--exec", "sed s/7/seven/"))
    dispatch()
    run = ("worker", "run", "--exec", CALLING, "-o", "jsonl", "--drain")
    is_root = os.geteuid() == 0
    assert [rest["status"] for rest in rests(cbx(*run))] == ["suspended" if is_root else "ended"]
    dispatch(agent="other")
    assert [rest["status"] for rest in rests(cbx(*run, "--trust-stored-commands"))] == ["ended"]


def test_a_registered_command_answers_a_call(cbx: Cbx, dispatch: Dispatch) -> None:
    succeed(cbx("tool", "add", "lookup", "--exec", "sed s/7/seven/"))
    turn = dispatch()
    [rest] = rests(work(cbx, CALLING))
    assert (rest["end_status"], rest["steps"]) == ("success", 2)
    assert deliverable(cbx, turn) == 'The tool says: {"order":seven}'


def test_a_call_is_answered_later_by_a_report(cbx: Cbx, dispatch: Dispatch) -> None:
    succeed(cbx("tool", "add", "lookup"))
    turn = dispatch()
    [rest] = rests(work(cbx, CALLING))
    assert (rest["status"], rest["waiting_tool_call_ids"]) == ("suspended", ["call_0"])
    assert rests(work(cbx, CALLING)) == []
    succeed(cbx("turn", "report", turn, "--tool-call-id", "call_0", "--result", '{"status": "paid"}'))
    [rest] = rests(work(cbx, CALLING))
    assert (rest["status"], rest["end_status"]) == ("ended", "success")
    assert deliverable(cbx, turn) == 'The tool says: {"status":"paid"}'


@pytest.mark.parametrize("text", ["@/etc/passwd", '{"a": 1}', "@-"])
def test_a_result_text_is_stored_unchanged(cbx: Cbx, dispatch: Dispatch, text: str) -> None:
    succeed(cbx("tool", "add", "lookup"))
    turn = dispatch()
    work(cbx, CALLING)
    report = ("turn", "report", turn, "--tool-call-id", "call_0", "--result-text", text, "-o", "id")
    card = cbx("card", "show", succeed(cbx(*report)).strip(), "-o", "json").json()
    assert card["content"]["result"] == text


def test_a_stored_command_waits_for_a_report_unless_it_is_trusted(cbx: Cbx, dispatch: Dispatch) -> None:
    succeed(cbx("tool", "add", "lookup", "--exec", "echo stored"))
    turn = dispatch()
    [rest] = rests(cbx("worker", "run", "--exec", CALLING, "-o", "jsonl", "--drain"))
    assert rest["status"] == "suspended"
    why = cbx("why", turn, "-o", "json").json()
    [stored] = [each for each in why["evidence"] if each["table"] == "resource.tools"]
    assert (why["rule"], stored["row"]) == ("waiting-for-tool", "lookup")
    assert "has a stored command that no worker ran" in stored["shows"]


def test_the_tools_file_gives_the_commands_of_the_worker(
    cbx: Cbx, dispatch: Dispatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed(cbx("tool", "add", "lookup", "--exec", "echo stored"))
    monkeypatch.setenv("SHOP_KEY", "secret")
    monkeypatch.setenv("OTHER_KEY", "hidden")
    commands = tmp_path / "commands.yaml"
    commands.write_text(
        "lookup: {command: 'echo $SHOP_KEY $OTHER_KEY', timeout: 9, environment: [SHOP_KEY]}\n"
    )
    turn = dispatch()
    options = ("--tools", str(commands), "-o", "jsonl", "--drain")
    [rest] = rests(cbx("worker", "run", "--exec", f"test -z $SHOP_KEY && {CALLING}", *options))
    assert rest["end_status"] == "success"
    assert deliverable(cbx, turn) == "The tool says: secret"


def test_cbx_in_a_command_gets_no_default_database(shell: Shell, cbx: Cbx, dispatch: Dispatch) -> None:
    dispatch()
    [rest] = rests(
        shell.run("worker", "run", "--exec", "cat >/dev/null; cbx card list 2>&1", "--drain", "-o", "jsonl")
    )
    assert rest["error_code"] == "command_failed"
    [failed] = cbx("turn", "list", "-o", "json").json()
    report = deliverable_of(cbx, failed["agent_turn_id"])
    assert "its worker passes it no database" in report


def test_the_command_does_not_inherit_the_database_address(cbx: Cbx, dispatch: Dispatch) -> None:
    dispatch()
    address = "test -z $CBX_DATABASE_URL$CBX_HOME$CBX_NATS_URL && printf '%s' '{}'"
    turn = dispatch()
    for rest in rests(work(cbx, address)):
        assert rest["end_status"] == "success"
    assert deliverable(cbx, turn) == "{}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lookup: {}", "--tools: 'lookup': Object missing required field `command`"),
        ("lookup: ' '", "--tools: 'lookup': Expected `str` matching regex"),
        ("lookup: {command: x, timeout: 0}", "--tools: 'lookup': Expected `float` > 0.0 - at `$.timeout`"),
        ("lookup: {command: x, environment: [NO_KEY]}", "--tools: 'lookup': NO_KEY is not set"),
        ("[lookup]", "must be a mapping of tools"),
        ("lookup: *a", "commands.yaml:1: lookup: the alias *a is not supported; write the value out"),
    ],
)
def test_an_invalid_tools_file_is_refused_before_work_starts(
    cbx: Cbx, tmp_path: Path, text: str, message: str
) -> None:
    commands = tmp_path / "commands.yaml"
    commands.write_text(text)
    result = cbx("worker", "run", "--exec", "true", "--drain", "--tools", str(commands))
    assert result.code in (2, 4)
    assert message in result.err


def test_a_resumed_turn_is_deferred_if_the_database_refuses_it(
    cbx: Cbx, dispatch: Dispatch, shown: Any, database: Database
) -> None:
    succeed(cbx("tool", "add", "lookup"))
    turn = dispatch()
    work(cbx, CALLING)
    database.script("ALTER TABLE state.agent_steps ADD CONSTRAINT no_room CHECK (false) NOT VALID")
    succeed(cbx("turn", "report", turn, "--tool-call-id", "call_0", "--result", '{"status": "paid"}'))
    assert "is left to its lease" not in work(cbx, CALLING, "--once").err
    assert [row["status"] for row in shown(turn)["inbox"]] == ["consumed", "deferred"]


def test_a_failed_turn_does_not_fail_the_worker(cbx: Cbx, dispatch: Dispatch, shown: Any) -> None:
    turn = dispatch()
    result = work(cbx, "cat >/dev/null; echo no key >&2; exit 2")
    [rest] = rests(result)
    assert (rest["end_status"], rest["error_code"]) == ("failed", "command_failed")
    assert rest["message"] == "the command ended with exit code 2"
    assert (
        f"turn {turn} of clerk: ended failed (command_failed): the command ended with exit code 2"
        in result.err
    )
    left = cbx("card", "show", shown(turn)["deliverable_card_id"], "-o", "json").json()["content"]["data"]
    assert left["diagnostics"]["stderr_tail"] == "no key\n"


def test_a_broken_command_fails_no_turn_and_ends_a_drain(cbx: Cbx, dispatch: Dispatch, shown: Any) -> None:
    turns = [dispatch(agent=f"a{number}") for number in range(5)]
    result = cbx("worker", "run", "--exec", "echo no GPU >&2; exit 1", "--drain")
    assert result.code == 7
    assert "this worker cannot run turns: the command failed 3 times in a row" in result.err
    assert {shown(turn)["end_status"] for turn in turns} == {None}
    assert "claiming is paused for 60 s" in result.err


def test_a_worker_with_a_broken_command_says_so_and_tries_one_turn_after_a_pause(
    cbx: Cbx, shell: Shell, dispatch: Dispatch, shown: Any, tmp_path: Path
) -> None:
    turns = [dispatch(agent=f"a{number}") for number in range(5)]
    command = f"test -e {tmp_path}/repaired && echo done || exit 1"
    short = {"CBX_LEASE": "2", "CBX_HEARTBEAT": "0.2", "CBX_POLL": "0.2", "CBX_BACKOFF": "0.1"}
    worker = Shell({**shell.environment, **short}, shell.folder, shell.programs)
    with worker.started("worker", "run", "--exec", command):
        until(lambda: "3 times in a row" in cbx("worker", "list", "-o", "json").out)
        (tmp_path / "repaired").touch()
        until(lambda: {shown(turn)["end_status"] for turn in turns} == {"success"})
        until(lambda: "times in a row" not in cbx("worker", "list", "-o", "json").out)


def test_a_model_that_does_not_fit_the_format_causes_one_warning(cbx: Cbx, dispatch: Dispatch) -> None:
    note = (
        "warning: the model 'claude-sonnet-4-5' is Anthropic's, and this body is in the format openai: "
        "--format anthropic makes its own"
    )
    claude = ("--model", "claude-sonnet-4-5", "--drain")
    for agent in ("clerk", "other"):
        dispatch(agent=agent)
    told = [line.split(" ", 1)[1] for line in work(cbx, CALLING, *claude).err.splitlines()]
    assert told.count(note) == 1
    turn = dispatch()
    assert note not in work(cbx, CLIENT, *claude, "--format", "openai").err
    # The turn's requests tell, too, whose they were.
    assert f"note: {note.removeprefix('warning: ')}" in cbx("render", "--turn", turn, "--check").err
    for model in ("gpt-4o", "anthropic/claude-sonnet-4-5", "llama-3"):
        dispatch()
        assert "warning" not in work(cbx, CLIENT, "--model", model, "--drain").err


def test_a_worker_without_work_ends_immediately(cbx: Cbx, dispatch: Dispatch) -> None:
    assert rests(work(cbx, CLIENT, "--once")) == []
    assert rests(work(cbx, CLIENT, "--drain")) == []


def test_once_runs_one_turn_and_drain_runs_all(cbx: Cbx, dispatch: Dispatch) -> None:
    turns = [dispatch(), dispatch(), dispatch()]
    assert [rest["agent_turn_id"] for rest in rests(work(cbx, CLIENT, "--once"))] == turns[:1]
    assert [rest["agent_turn_id"] for rest in rests(work(cbx, CLIENT, "--drain"))] == turns[1:]


def test_two_turns_run_at_the_same_time(cbx: Cbx, dispatch: Dispatch, tmp_path: Path) -> None:
    for agent in ("clerk", "scribe"):
        dispatch(agent=agent)
    meet = f"touch {tmp_path}/$CBX_AGENT; until test -e {tmp_path}/clerk -a -e {tmp_path}/scribe; do sleep 0.05; done; echo met"
    found = rests(work(cbx, meet, "--drain", "--concurrency", "2", "--timeout", "30"))
    assert [rest["end_status"] for rest in found] == ["success", "success"]


def test_all_projects_runs_the_turns_of_other_projects(cbx: Cbx, dispatch: Dispatch) -> None:
    turn = dispatch()
    assert rests(cbx("-p", "other", "worker", "run", "--exec", CLIENT, "--drain", "-o", "jsonl")) == []
    [rest] = rests(
        cbx("-p", "other", "worker", "run", "--exec", CLIENT, "--drain", "--all-projects", "-o", "jsonl")
    )
    assert (rest["agent_turn_id"], rest["project_id"]) == (turn, PROJECT)


def test_a_drain_of_all_projects_waits_for_claimed_turns(
    cbx: Cbx, dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = dispatch()
    monkeypatch.setenv("CBX_LEASE", "2")
    monkeypatch.setenv("CBX_HEARTBEAT", "1")
    monkeypatch.setenv("CBX_POLL", "0.1")
    # Somebody claims it and is never heard of again.
    succeed(cbx("inbox", "claim", "--target", "worker_generic", "--owner", "gone"))
    [rest] = rests(cbx("worker", "run", "--exec", CLIENT, "--drain", "--all-projects", "-o", "jsonl"))
    assert (rest["agent_turn_id"], rest["end_status"]) == (turn, "success")


def test_a_broken_connection_does_not_fail_the_turn_that_begins(
    cbx: Cbx, dispatch: Dispatch, database: Database
) -> None:
    turn = dispatch()
    database.script("""
        CREATE SEQUENCE public.begun;
        CREATE FUNCTION public.break_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('public.begun') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RETURN NEW;
        END $$;
        -- As if another program had dispatched the turn: its record is made as it begins.
        DELETE FROM cbx.turns;
        CREATE TRIGGER break_once BEFORE INSERT ON cbx.turns FOR EACH ROW EXECUTE FUNCTION public.break_once();
    """)
    result = work(cbx, CLIENT, "--drain")
    [rest] = rests(result)
    assert (rest["agent_turn_id"], rest["end_status"]) == (turn, "success")
    tries = database.connection.execute("SELECT retry_count FROM state.agent_inbox").fetchall()
    assert (tries, "failed" in result.err) == ([(0,)], False)


def test_a_drain_does_not_wait_for_unclaimable_turns(
    shell: Shell, dispatch: Dispatch, database: Database
) -> None:
    turn = dispatch(agent="whole")
    dispatch(agent="beheaded")
    database.connection.execute("DELETE FROM state.agent_state_head WHERE agent_id = 'beheaded'")
    drained = shell.run("worker", "run", "--exec", CLIENT, "--drain", "-o", "id")
    assert lines(drained) == [turn]
    warning = "warning: left due rows of beheaded: without a head no worker can claim them"
    assert drained.err.splitlines()[-1].endswith(warning)


def test_every_output_format_lists_the_turns(cbx: Cbx, dispatch: Dispatch) -> None:
    turns = [dispatch(), dispatch(), dispatch()]
    assert lines(cbx("worker", "run", "--exec", CLIENT, "--once", "-o", "id")) == turns[:1]
    assert succeed(cbx("worker", "run", "--exec", CLIENT, "--once")) == ""
    assert [
        rest["agent_turn_id"]
        for rest in cbx("worker", "run", "--exec", CLIENT, "--drain", "-o", "json").json()
    ] == turns[2:]


def test_a_deliverable_appended_by_the_command_is_used(
    cbx: Cbx, dispatch: Dispatch, said: Any, shell: Shell
) -> None:
    turn = dispatch()
    command = "CARD=$(cbx card add --type task.deliverable --text mine -o id) && cbx box append $CBX_OUTPUT_BOX $CARD >&2"
    named = [option for name in ("CBX_DATABASE_URL", "CBX_HOME") for option in ("--env", name)]
    result = shell.run("worker", "run", "--exec", command, "--drain", "-o", "jsonl", *named)
    [rest] = rests(result)
    assert rest["end_status"] == "success", result.err
    assert said(turn) == ["task.deliverable"]


def test_a_lost_lease_stops_the_command_even_if_it_is_claimed_again(
    cbx: Cbx, dispatch: Dispatch, shell: Shell, database: Database, tmp_path: Path
) -> None:
    # No heartbeat comes meanwhile, so the worker takes its own turn for lost, and has a slot free for it.
    variables = {"CBX_LEASE": "3000", "CBX_HEARTBEAT": "1000", "CBX_POLL": "0.2"}
    worker = Shell({**shell.environment, **variables}, shell.folder, shell.programs)
    turn = dispatch()
    command = f"mkdir {tmp_path}/begun || {{ echo done; exit; }}; sleep 600"
    expire = "UPDATE cbx.leases SET expires_at = now() - interval '1 second' WHERE turn_epoch = 1"
    with worker.started("worker", "run", "--exec", command, "--drain", "--concurrency", "2") as process:
        until((tmp_path / "begun").exists)
        until(lambda: database.connection.execute(expire).rowcount == 0)
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert f"turn {turn} of clerk: lost: the lease was lost, and the command was stopped" in told.decode()
    assert deliverable(cbx, turn) == "done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--exec", "x", "--once", "--drain"],
            "error: --once and --drain cannot be combined\nhint: remove one of them\n",
        ),
        (
            ["--exec", " "],
            "error: --exec is empty\nhint: for example --exec 'python3 client.py'\n",
        ),
        (
            ["--exec", "x", "--target", " "],
            "error: --target is empty\nhint: `cbx agent list` shows the worker target of each agent\n",
        ),
        (
            ["--exec", "x", "--timeout", "nan"],
            "error: Invalid value for '--timeout': nan is not a duration of at most 1,000,000,000 seconds.\n"
            "hint: `cbx worker run --help` shows the options and examples\n",
        ),
        (
            ["--exec", "x", "--max-steps", "0"],
            "error: --max-steps is 0; it must be a whole number from 1 to 10000\n"
            "hint: correct the value, or omit it: the default is 8\n",
        ),
        (
            ["--exec", "no-such-program -m 'a model'"],
            "error: --exec: unknown program 'no-such-program'\nhint: check the name and PATH\n",
        ),
        (
            ["--exec", "x", "--env", "KEY=secret"],
            "error: --env: invalid variable name 'KEY=…'\n"
            "hint: pass only the name: the value comes from the environment, where `ps` does not show it\n",
        ),
        (
            ["--exec", "x", "--answers", "json"],
            "error: --answers: unknown mode 'json'\nhint: modes are auto, response, text, cards\n",
        ),
        (
            ["--exec", "x", "--format", "yaml"],
            "error: --format: unknown format 'yaml'\nhint: formats are openai, anthropic, openai-responses, "
            "gemini, bedrock-converse, text\n",
        ),
    ],
)
def test_invalid_options_are_refused(cbx: Cbx, options: list[str], message: str) -> None:
    result = cbx("worker", "run", *options)
    assert (result.code, result.err) == (2, message)


class TestProcesses:
    """Workers that are killed, paused or told to leave."""

    @pytest.fixture
    def worker(self, shell: Shell, tmp_path: Path) -> Callable[..., Any]:
        """Start a worker whose command makes the file `begun` and waits for `go`."""
        command = f"echo $$ > {tmp_path}/pid; touch {tmp_path}/begun; until test -e {tmp_path}/go; do sleep 0.02; done; echo slow"

        @contextmanager
        def start(*options: str) -> Iterator[subprocess.Popen[bytes]]:
            with shell.started("worker", "run", "--exec", command, *options) as process:
                until((tmp_path / "begun").exists)
                yield process

        return start

    def test_the_turn_of_a_killed_worker_is_run_by_another(
        self,
        cbx: Cbx,
        dispatch: Dispatch,
        worker: Any,
        shown: Any,
        said: Any,
        later: Callable[[str], None],
        tmp_path: Path,
    ) -> None:
        turn = dispatch()
        with worker() as process:
            process.kill()
            process.wait()
        wait_for_end(int((tmp_path / "pid").read_text()))
        listed = cbx("worker", "list", "-o", "json")
        assert (listed.json(), listed.err) == (
            [],
            "1 worker stopped unexpectedly; show them with --all\n",
        )
        assert [each["live"] for each in cbx("worker", "list", "--all", "-o", "json").json()] == [False]
        [rest] = rests(work(cbx, CLIENT, "--once"))
        assert (rest["agent_turn_id"], rest["end_status"]) == (turn, "success")
        assert said(turn) == ["agent.thought", "task.deliverable"]
        assert [step["status"] for step in shown(turn)["steps"]] == ["failed", "completed"]

    @pytest.mark.parametrize("stream", ["stdout", "stderr"])
    def test_a_worker_with_a_closed_output_ends_after_its_turn(
        self, dispatch: Dispatch, worker: Any, shown: Any, tmp_path: Path, stream: str
    ) -> None:
        turn, next_turn = dispatch(), dispatch()
        with worker("-o", "jsonl") as process:
            getattr(process, stream).close()
            (tmp_path / "go").touch()
            assert process.wait(PATIENCE) == 141
            told = b"" if stream == "stderr" else process.stderr.read()
        assert b"failed" not in told
        assert b"Traceback" not in told
        assert shown(turn)["end_status"] == "success"
        assert shown(next_turn)["status"] == "dispatched"

    def test_a_worker_paused_past_its_lease_writes_nothing(
        self,
        cbx: Cbx,
        dispatch: Dispatch,
        worker: Any,
        shown: Any,
        said: Any,
        later: Callable[[str], None],
        tmp_path: Path,
    ) -> None:
        turn = dispatch()
        with worker("--once") as process:
            os.kill(process.pid, signal.SIGSTOP)
            later("90 seconds")
            [rest] = rests(work(cbx, CLIENT, "--once"))
            (tmp_path / "go").touch()
            os.kill(process.pid, signal.SIGCONT)
            _, told = process.communicate(timeout=PATIENCE)
        assert rest["end_status"] == "success"
        assert process.returncode == 0
        assert f"turn {turn} of clerk: lost: " in told.decode()
        assert "it ended (success)" in told.decode()
        assert said(turn) == ["agent.thought", "task.deliverable"]
        assert "I read 2 messages" in deliverable(cbx, turn)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
    def test_a_signaled_worker_hands_back_its_turn(
        self, cbx: Cbx, dispatch: Dispatch, worker: Any, shown: Any, number: int, code: int
    ) -> None:
        turn = dispatch()
        with worker("--grace", "0") as process:
            process.send_signal(number)
            _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, told
        assert f"turn {turn} of clerk: handed back" in told.decode()
        [row] = shown(turn)["inbox"]
        assert (row["status"], row["turn_epoch"], row["retry_count"]) == ("pending", 2, 0)
        assert lines(cbx("worker", "list", "-o", "id")) == []
        assert [rest["end_status"] for rest in rests(work(cbx, CLIENT, "--once"))] == ["success"]

    def test_a_signaled_worker_finishes_its_turn_before_it_exits(
        self, dispatch: Dispatch, worker: Any, shown: Any, tmp_path: Path, cbx: Cbx
    ) -> None:
        turn = dispatch()
        with worker() as process:
            [entry] = cbx("worker", "list", "-o", "json").json()
            assert (entry["worker_target"], entry["live"], entry["pid"]) == (
                "worker_generic",
                True,
                process.pid,
            )
            process.send_signal(signal.SIGTERM)
            assert b"exiting" in next(line for line in process.stderr if b"exiting" in line)
            (tmp_path / "go").touch()
            process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert shown(turn)["end_status"] == "success"

    def test_a_worker_survives_a_temporary_loss_of_the_database(
        self,
        databases: Databases,
        database: Database,
        dispatch: Dispatch,
        worker: Any,
        shown: Any,
        tmp_path: Path,
    ) -> None:
        turn = dispatch()
        name = database.connection.info.dbname
        with worker("--drain") as process:
            database.close()
            databases.admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            databases.admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            (tmp_path / "go").touch()
            told = next(line for line in process.stderr if b"trying again" in line)
            databases.admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            _, rest = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, rest
        assert told.endswith(b"trying again until it is back\n")
        assert rest.count(b"trying again") == 0
        assert rest.count(b"the database is back") == 1
        assert shown(turn)["end_status"] == "success"

    def test_a_stopped_turn_stops_its_command(
        self, cbx: Cbx, dispatch: Dispatch, shell: Shell, tmp_path: Path
    ) -> None:
        turn = dispatch()
        command = (
            f"trap 'touch {tmp_path}/told; exit' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done"
        )
        environment = {**shell.environment, "CBX_HEARTBEAT": "0.1"}
        with Shell(environment, shell.folder, shell.programs).started(
            "worker", "run", "--exec", command, "--once"
        ) as process:
            until((tmp_path / "begun").exists)
            succeed(cbx("turn", "stop", turn))
            _, told = process.communicate(timeout=PATIENCE)
        assert "lost: the lease was lost, and the command was stopped" in told.decode()
        assert (tmp_path / "told").exists()


@pytest.fixture
def later(database: Database) -> Callable[[str], None]:
    """Let the database's clock be ahead by so much, for those who connect from now on."""

    def shift(interval: str) -> None:
        database.connection.execute(
            f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET cbx.clock_offset = %L', current_database(), '{interval}'); END $$"
        )

    return shift


def test_a_worker_does_not_report_turns_for_other_targets(
    cbx: Cbx, dispatch: Dispatch, later: Callable[[str], None]
) -> None:
    turn = dispatch()
    later("1 minute")
    result = cbx("worker", "run", "--target", "others", "--exec", CLIENT, "--once")
    assert (result.code, len(result.err.splitlines())) == (0, 1)
    assert cbx("reap").out == f"notified  {turn}\n"


class TestClientsThatStay:
    SHELL = f"sh {shlex.quote(str(Path(__file__).parents[3] / 'examples/client-that-stays.sh'))}"

    def serve(self, cbx: Cbx, client: str, *options: str) -> list[dict[str, Any]]:
        """The outcomes of a worker that ends when nothing is due."""
        done = cbx("worker", "run", "--serve", client, "-o", "jsonl", "--drain", *options)
        return [json.loads(line) for line in lines(done)]

    def test_a_client_calls_tools_in_one_step_and_answers_in_the_next(
        self, cbx: Cbx, dispatch: Dispatch, said: Callable[[str], list[str]]
    ) -> None:
        succeed(cbx("tool", "add", "lookup", "--exec", "cat"))
        first, second = dispatch(agent="clerk"), dispatch(agent="scribe")
        calling = f"""{CLIENT} --serve --call lookup '{{"order": 7}}'"""
        outcomes = self.serve(cbx, calling, "--trust-stored-commands", "--concurrency", "2")
        assert {outcome["agent_turn_id"]: outcome["steps"] for outcome in outcomes} == {first: 2, second: 2}
        assert said(first) == [
            "agent.thought",
            "tool.call",
            "tool.result",
            "agent.thought",
            "task.deliverable",
        ]

    def test_a_client_gets_the_turn_id_and_the_request_as_text(self, cbx: Cbx, dispatch: Dispatch) -> None:
        turn = dispatch("Say which turn this is.")
        say = """
import json
print('{"ready": true}', flush=True)
asked = json.loads(input())
print(json.dumps({"answer": asked["turn"]["CBX_TURN_ID"] + ": " + asked["request"]}), flush=True)
"""
        client = f"{shlex.quote(sys.executable)} -c {shlex.quote(say)}"
        self.serve(cbx, client, "--format", "text", "--answers", "text")
        answer = cbx("turn", "wait", turn).out
        assert answer.startswith(f"{turn}: ")
        assert "Say which turn this is." in answer

    def test_the_example_client_in_shell_works(self, cbx: Cbx, dispatch: Dispatch) -> None:
        turn = dispatch()
        [outcome] = self.serve(cbx, self.SHELL)
        assert outcome["agent_turn_id"] == turn
        assert cbx("turn", "wait", turn).out.startswith("The request had ")

    def test_a_crashed_client_fails_only_its_own_turn(
        self, cbx: Cbx, dispatch: Dispatch, shown: Callable[[str], Any]
    ) -> None:
        crashing = "read -r line; case $line in *crash*) echo oops >&2; exit 3;; esac"
        client = f"""echo '{{"ready": true}}'; while :; do {crashing}; echo '{{"answer": "well"}}'; done"""
        good, bad, other = dispatch(agent="a"), dispatch("crash", agent="b"), dispatch(agent="c")
        self.serve(cbx, client)
        ends = {turn: shown(turn)["end_status"] for turn in (good, bad, other)}
        assert ends == {good: "success", bad: "failed", other: "success"}
        assert "oops" in cbx("turn", "logs", bad).out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--exec", "a", "--serve", "b"), "--exec and --serve cannot be combined"),
            (("--serve", " "), "--serve is empty"),
            (("--exec", "cat", "--restart-after", "2"), "--restart-after requires --serve"),
            ((), "no model command given"),
            (("--serve", "no-such-client"), "--serve: unknown program 'no-such-client'"),
        ],
    )
    def test_invalid_client_options_are_refused(
        self, cbx: Cbx, options: tuple[str, ...], message: str
    ) -> None:
        refused = cbx("worker", "run", *options)
        assert (refused.code, refused.err.splitlines()[0]) == (2, f"error: {message}")
