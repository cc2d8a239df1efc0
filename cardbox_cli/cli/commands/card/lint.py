"""`cbx card lint`: what a provider would refuse in a conversation file. Needs no database."""

from collections.abc import Container
from typing import Annotated

from typer import Option

from cardbox_cli.cli.parameters.inputs import source_name
from cardbox_cli.cli.parameters.large_files import open_file
from cardbox_cli.cli.parameters.options import AUTO, ConversationFile, MessagesKey, SourceFormat
from cardbox_cli.cli.parameters.types import OneOf
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal.reports.findings import answer
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.lint.schema import UNKNOWN
from cardbox_cli.context.providers.registry import HOSTS, PROVIDERS
from cardbox_cli.conversations.containers.archives import unzipped
from cardbox_cli.conversations.formats.registry import choose_format, format_named
from cardbox_cli.conversations.json_files.documents import Documents
from cardbox_cli.conversations.json_files.window import Source


@verb(
    "cbx card lint chat.json",
    "cbx card lint runs.jsonl --format anthropic",
    "cbx card lint request.json -o json | jq -r '.[].message'",
    "cbx card lint request.json --provider openai-compatible",
)
def command(
    file: ConversationFile,
    from_: SourceFormat = AUTO,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            "--provider",
            click_type=OneOf(lambda: (*PROVIDERS, *HOSTS), what="format"),
            help="Whose rules to check by; openai-compatible is for hosts that have OpenAI's API and other "
            "models. Default: the model's beside the messages, else the format's own.",
        ),
    ] = None,
    at: MessagesKey = None,
    allow_unknown: Annotated[
        bool,
        Option("--allow-unknown", help="Only warn of keys that the provider's package does not know (yet)."),
    ] = False,
) -> None:
    """Check conversations for what a provider would refuse. Exit 8 on errors; nothing is stored.

    A request in the provider's own format is checked as it was logged: what cbx would mend when it renders is
    an error, too. Any other conversation is checked as the request that its cards make, with the model and
    the tools that stand beside its messages.
    """
    wanted = None if from_ == AUTO else from_
    answer(_findings(file, wanted, format_, at, UNKNOWN if allow_unknown else ()))


def _findings(
    file: str, wanted: str | None, format_: str | None, at: str | None, warned: Container[str]
) -> list[LintFinding]:
    from cardbox_cli.conversations.linting import lint_conversation, provider_beside

    with open_file(file) as plain, unzipped(plain, source_name(file)) as opened:
        documents = Documents(Source(opened, source_name(file)))
        module, evidence = choose_format(wanted, documents)
        own = module.provider
        findings: list[LintFinding] = []
        providers: set[str] = set()
        for conversation in module.read(documents, at=at):
            # In a log of requests each is in the format of the provider that it was sent to.
            is_sent = conversation.format != module.name
            named = provider_beside(conversation) if wanted is None and not is_sent else None
            provider = format_ or named or format_named(conversation.format).provider
            providers.add(provider)
            findings += lint_conversation(conversation, provider, session().project_id, warned=warned)
        if wanted is None:
            others = (
                "" if providers <= {own} or format_ else f", checked for {' and '.join(sorted(providers))}"
            )
            announce(f"taken as {module.name}: {evidence}{others}")
        return findings
