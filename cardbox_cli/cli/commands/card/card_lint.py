"""`cbx card lint`: checks conversation files for what a provider would reject."""

import os
from collections.abc import Container, Sequence
from typing import Annotated, NamedTuple

import msgspec
from typer import Option

from cardbox_cli.cli.options.conversation_files import (
    RefusedFile,
    announce_left_out,
    open_file,
    split_files,
    take_each,
)
from cardbox_cli.cli.options.input_files import path_text, source_name
from cardbox_cli.cli.options.shared_options import AUTO, ConversationFiles, MessagesKey, SourceFormat
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.lint_report import print_findings, show
from cardbox_cli.cli.terminal.progress_bar import bar
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.lint.rule import FileFinding, LintFinding
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.request_schema import UNKNOWN
from cardbox_cli.conversations.containers.packed_files import open_log
from cardbox_cli.conversations.formats.registry import choose_format, find_format
from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource
from cardbox_cli.errors import InvalidInput, NoMessages, NotFound
from cardbox_cli.providers.registry import HOSTS, PROVIDERS
from cardbox_cli.text.quantities import format_count


@verb(
    "lint",
    "cbx card lint chat.json",
    "cbx card lint runs.jsonl --format anthropic",
    "cbx card lint conversations/ more.jsonl.gz",
    "cbx card lint request.json -o json | jq -r '.[].message'",
    "cbx card lint request.json --provider openai-compatible",
)
def lint_cards(
    files: ConversationFiles,
    from_: SourceFormat = AUTO,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            "--provider",
            click_type=OneOf(lambda: (*PROVIDERS, *HOSTS), what="format"),
            help="The provider whose rules to check, or openai-compatible for other hosts with OpenAI's "
            "API. Default: the provider of the file's model, else of its format.",
        ),
    ] = None,
    at: MessagesKey = None,
    allow_unknown: Annotated[
        bool,
        Option(
            "--allow-unknown", help="Allow keys that the provider's package does not know, with a warning."
        ),
    ] = False,
) -> None:
    """Check conversations for what a provider would reject. Exit 8 on errors; nothing is stored.

    A request in the provider's own format is checked as it was logged: problems that cbx would repair when it
    renders are errors, too. Any other conversation is checked as the request that cbx would render, with the
    model and tools next to its messages. Every file is checked, even if one of them cannot be read.
    """
    options = _LintOptions(None if from_ == AUTO else from_, format_, at, UNKNOWN if allow_unknown else ())
    paths, refused = split_files(files)
    if len(paths) + len(refused) > 1:
        _lint_all(paths, refused, options)
    elif refused:
        raise refused[0].error
    else:
        print_findings(_lint_file(paths[0], options))


class _LintOptions(NamedTuple):
    """The options that apply to every file. `warned` are the rules that only warn."""

    source_format: str | None
    provider: str | None
    at: str | None
    warned: Container[str]


def _lint_all(files: Sequence[str], folders: Sequence[RefusedFile], options: _LintOptions) -> None:
    """Check files one after the other, and print all findings. `folders` are refused."""
    findings: list[FileFinding] = []

    def refuse(refused: RefusedFile) -> bool:
        announce(f"error: {refused.error.message}")
        return True

    for folder in folders:
        refuse(folder)
    unread = [
        *folders,
        *take_each(
            files, lambda file, which: findings.extend(_lint_file(file, options, which)), refuse=refuse
        ),
    ]
    if not unread:
        print_findings(findings)
        return
    total = len(files) + len(folders)
    show(findings, files_read=total - len(unread))
    # Unread files outrank findings: their content is unknown.
    kind = NotFound if all(isinstance(each.error, NotFound) for each in unread) else InvalidInput
    raise kind(
        f"{len(unread)} of {format_count(total, 'file')} could not be read and were not checked",
        details={"failed": [each.error_fields for each in unread]},
    )


def _lint_file(file: str, options: _LintOptions, which: str = "") -> list[FileFinding]:
    """Return the findings in a file. With `which`, its place among several, notes begin with its name."""
    name = source_name(file)
    with (
        open_file(file) as plain,
        open_log(plain, name) as opened,
        bar(f"checking {which}".strip(), os.fstat(opened.fileno()).st_size, in_bytes=True) as heard,
    ):
        documents = JsonDocuments(JsonSource(opened, name, heard=heard))
        findings = _find_problems(documents, options, f"{name}: " if which else "")
    return [FileFinding(**msgspec.structs.asdict(each), file=path_text(file)) for each in findings]


def _find_problems(documents: JsonDocuments, options: _LintOptions, lead: str) -> list[LintFinding]:
    from cardbox_cli.conversations.conversation_cards import SkippedConversations
    from cardbox_cli.conversations.conversation_lint import (
        detect_provider,
        is_empty_conversation,
        lint_conversation,
    )
    from cardbox_cli.providers.models import unknown_models

    given_format, project_id = options.source_format, session().project_id
    module, evidence = choose_format(given_format, documents)
    findings: list[LintFinding] = []
    providers: set[str] = set()
    models: dict[str | None, None] = {}
    left_out = SkippedConversations()
    try:
        for conversation in module.read(documents, at=options.at):
            if is_empty_conversation(conversation):
                left_out = left_out.add(conversation.place)
                continue
            # In a log of requests, each request has the format of its provider.
            is_sent = conversation.format != module.name
            detected = detect_provider(conversation) if given_format is None and not is_sent else None
            provider = options.provider or detected or find_format(conversation.format).provider
            providers.add(provider)
            # A host has models of its own.
            models |= {} if provider in HOSTS else {text_at(conversation.siblings, "model"): None}
            findings += lint_conversation(conversation, provider, project_id, warned=options.warned)
    except NoMessages:
        if not findings:
            raise
    if given_format is None:
        is_own = options.provider is not None or providers <= {module.provider}
        others = "" if is_own else f", checked for {' and '.join(sorted(providers))}"
        announce(f"{lead}recognized as {module.name}: {evidence}{others}")
    announce_left_out(left_out, lead)
    if (unknown := unknown_models(models)) is not None:
        announce(f"note: {lead}{unknown}")
    return findings
