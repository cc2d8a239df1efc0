"""`cbx chat tools`."""

from typing import Annotated

import msgspec
from typer import Option

from cardbox_cli.chat.tools import CHAT_TOOLS
from cardbox_cli.cli.parameters.types import OneOf
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.request import ComposeOptions, request_of
from cardbox_cli.execution.requests.request import function_tool
from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named


@verb("cbx chat tools", "cbx chat tools --format anthropic | jq '.[].name'")
def command(
    format: Annotated[
        str, Option(click_type=OneOf(lambda: PROVIDERS, what="format"), help="Of which provider.")
    ] = DEFAULT,
) -> None:
    """Print the tools by which a model steers its chat's context, as a request offers them.

    `cbx chat run` offers and answers them by itself; other programs answer them by `cbx chat call`.
    """
    provider = provider_named(format)
    tools = [function_tool(each.tool) for each in CHAT_TOOLS.values()]
    request = request_of([], ComposeOptions(), encode=provider.encode)
    offered = provider.body(msgspec.structs.replace(request, tools=tools))["tools"]
    output.emit(offered, table=lambda: output.emit_document(offered), ids=list(CHAT_TOOLS))
