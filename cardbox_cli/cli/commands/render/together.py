"""Which options of `cbx render` go together. Every check raises UsageError."""

from cardbox_cli.errors import UsageError
from cardbox_cli.execution.requests.request import NEXT
from cardbox_cli.providers.registry import HOSTS


def check_answers(**asked: bool) -> None:
    """Raise UsageError where more than one answer is asked for."""
    named = [f"--{name}" for name, is_asked in asked.items() if is_asked]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two answers", hint="ask for one of them")


def check_sources(
    box: list[str] | None,
    turn: str | None,
    agent: str | None,
    chat: str | None,
    profile: str | None,
    *,
    is_diff: bool,
) -> None:
    """Raise UsageError unless one request is named; --diff may name both of its own."""
    given = {"--box": box, "--turn": turn, "--agent": agent, "--chat": chat}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two requests", hint="name one of them")
    if profile is not None and (turn or agent or chat):
        raise UsageError("--profile is for boxes: a turn has its own", hint="leave it out, or name boxes")
    if not named and not is_diff:
        raise UsageError(
            "no request is named", hint="name boxes with --box, a turn by --turn or --agent, or --chat"
        )


def format_of_host(provider: str, format_: str | None, *, check: bool) -> str:
    """The format that a host takes. Raises UsageError for another, and without --check."""
    taken = HOSTS[provider][0]
    if not check:
        raise UsageError("--provider is for --check", hint="add --check, or leave --provider out")
    if format_ not in (None, taken):
        raise UsageError(f"{provider} takes no {format_}", hint=f"leave --format out, or make it {taken}")
    return taken


def check_step(at: str | None, *, has_steps: bool, is_diff: bool, verify: bool) -> None:
    """Raise UsageError for a step of no turn, and for steps that are named twice or not at all."""
    if at is not None and not has_steps:
        raise UsageError("--at names a step of a turn or a chat", hint="name it by --turn, --agent or --chat")
    if at is not None and is_diff:
        raise UsageError("--at names one step, --diff two", hint="leave --at out")
    if verify and not has_steps:
        raise UsageError("--verify is for what was sent", hint="name it by --turn, --agent or --chat")
    if verify and at == NEXT:
        raise UsageError("--verify: the next step has sent nothing", hint="--at names one that has begun")
