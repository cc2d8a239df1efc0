"""The body of a request as it is sent, and what reading it does not tell."""

from cardbox_cli.cli.parameters.requests import Shown
from cardbox_cli.cli.session import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import Request
from cardbox_cli.model.text.quantities import count
from cardbox_cli.providers.formats import TEXT, members_of, text_sections
from cardbox_cli.providers.registry import provider_named

# So many kinds of losses of cards are named; all are by --check.
_EXAMPLES = 3


def print_body(shown: Shown) -> None:
    """Print the body as it is sent, and tell what reading it does not: cards that are gone, calls renamed."""
    request = shown.request
    for entry in shown.entries:
        slot = entry.slot
        if slot.state != "present":
            announce(
                f"warning: {slot.state} card {slot.card_id} at position {slot.position} of box {entry.box_id}"
            )
    if shown.format == TEXT:
        _print_sections(request)
        return
    _tell_renamed(request, shown.format)
    _tell_losses(request, shown.format)
    if request.model is None:
        announce("note: no model is known; name one with --model, or add the profile's box")
    output.emit_members(members_of(request, shown.format))


def _print_sections(request: Request) -> None:
    """Print the messages and the tools with an empty line between, and none at the end."""
    held = ""
    for section in text_sections(request):
        if held:
            output.print_text(held + "\n")
        held = section
    output.print_text(held.rstrip("\n"))


def _tell_losses(request: Request, provider: str) -> None:
    lost = losses(request, provider_named(provider))
    if lost:
        # Of the cards some examples; parameters are few, and nobody would miss them in an answer.
        named = list(dict.fromkeys(loss.what for loss in lost if loss.card_id is not None))[:_EXAMPLES]
        named += [loss.what for loss in lost if loss.card_id is None]
        announce(
            f"warning: {provider} cannot say all of it ({count(len(lost), 'place')}): {', '.join(named)}; "
            "--check names each"
        )


def _tell_renamed(request: Request, provider: str) -> None:
    renamed = provider_named(provider).renamed_calls(request.messages)
    if renamed:
        announce(
            f"warning: {count(len(renamed), 'tool call')} got another id, such as {renamed[0].new!r} for "
            f"{renamed[0].old!r}; --check names each"
        )
