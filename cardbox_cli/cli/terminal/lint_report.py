"""Prints lint findings: on stdout as an answer, or on stderr next to another answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import short_or_nothing
from cardbox_cli.cli.terminal.table_layout import Column, print_below, print_table, text_or_nothing
from cardbox_cli.errors import Findings, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintFinding


def print_findings(findings: "Sequence[LintFinding]") -> None:
    show(findings)
    refuse(findings, hint=None)


def show(findings: "Sequence[LintFinding]", *, files_read: int | None = None) -> None:
    """Print the findings. `files_read` counts the readable files, if some were not readable."""
    output.emit_items(
        findings, table=lambda: _print_text(findings, files_read), item_id=lambda each: each.card_id or ""
    )


def announce_findings(findings: "list[LintFinding]") -> None:
    """Print the findings on stderr, as JSON if the answer is JSON, or else one line per distinct finding."""
    if session().output in ("json", "jsonl"):
        announce(exact_json.encode(findings).decode())
        return
    for line in unique(map(_line, findings)):
        announce(line)


def _line(finding: "LintFinding") -> str:
    remedy = f" ({finding.remedy})" if finding.remedy else ""
    card_id = finding.card_id
    place = "" if card_id is None else f" at card {short_id(card_id)}, position {finding.position}"
    return f"{finding.severity}: {finding.rule}{place}: {finding.message}{remedy}"


class LintGate:
    """The check of --check: prints the findings, and raises Findings if one is an error.

    With --force it raises nothing, and stores the rules of the errors in `overruled`.
    """

    def __init__(self, verb: str, *, force: bool) -> None:
        self._verb = verb
        self._force = force
        self.overruled: list[str] = []

    def __call__(self, findings: "list[LintFinding]") -> None:
        announce_findings(findings)
        if self._force:
            self.overruled = sorted({finding.rule for finding in findings if finding.severity == "error"})
        else:
            refuse(findings, hint=f"nothing was written; --force {self._verb} it anyway")


def gate(verb: str, *, check: bool, force: bool) -> LintGate | None:
    """Return the gate for --check and --force, or None without --check. Raises UsageError for --force alone.

    `verb` is the guarded action, for example "packs".
    """
    if force and not check:
        raise UsageError("--force requires --check", hint="add --check, or remove --force")
    return LintGate(verb, force=force) if check else None


def refuse(findings: "Sequence[LintFinding]", *, hint: str | None) -> None:
    errors = sum(finding.severity == "error" for finding in findings)
    if errors:
        raise Findings(f"the lint found {_numbers(errors, len(findings) - errors)}", hint=hint)


def _numbers(errors: int, warnings: int) -> str:
    return ", ".join(
        format_count(number, word) for number, word in ((errors, "error"), (warnings, "warning")) if number
    )


def _print_text(findings: "Sequence[LintFinding]", files_read: int | None) -> None:
    if files_read == 0:
        return
    where = "" if files_read is None else f" in the {format_count(files_read, 'file')} that could be read"
    if not findings:
        announce(f"nothing found{where}")
        return
    in_boxes = any(finding.box_id for finding in findings)
    print_table([each for each in _FINDING if in_boxes or each.name != "BOX"], findings)
    remedies = {finding.rule: finding.remedy for finding in findings if finding.remedy}
    print_below(_REMEDY, list(remedies.items()))
    if not any(finding.severity == "error" for finding in findings):
        announce(f"{_numbers(0, len(findings))}, no errors{where}: a provider would accept this")


_FINDING = (
    Column("#", lambda each: text_or_nothing(each.position), right=True),
    Column("CARD", lambda each: short_or_nothing(each.card_id)),
    Column("BOX", lambda each: short_or_nothing(each.box_id), spare=1),
    Column("SEVERITY", lambda each: each.severity),
    Column("RULE", lambda each: each.rule),
    Column("MESSAGE", lambda each: each.message),
)
_REMEDY = (Column("RULE", lambda pair: pair[0]), Column("REMEDY", lambda pair: pair[1]))
