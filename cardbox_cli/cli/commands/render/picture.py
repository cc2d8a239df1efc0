"""What `cbx render --format html` prints: the request as a page, with how the turn's requests grew to it."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.terminal import output
from cardbox_cli.context.explain import explain
from cardbox_cli.context.lint.rule import lint
from cardbox_cli.pictures.request import RequestPicture, StepPicture, request_page
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.providers.models import window

if TYPE_CHECKING:
    from cardbox_cli.cli.parameters.requests import Requests, Shown
    from cardbox_cli.execution.requests.recorded import RecordedRequests

# Steps that are drawn at most: the last ones.
_MOST_STEPS = 100


def picture_of(requests: "Requests", shown: "Shown", turn: "RecordedRequests | None") -> RequestPicture:
    """What is drawn of a request; of a turn's with those that were sent before it, which are read."""
    sent = [] if turn is None else turn.sent_before(shown.step_id)
    numbered = list(enumerate(sent, 1))[-_MOST_STEPS:]
    provider = provider_of(shown.format)
    steps = [
        StepPicture(name=f"step {number}", account=explain(each.request, provider_of(each.format)))
        for number, step_id in numbered
        if turn is not None
        for each in [requests.of_step(turn, step_id)]
    ]
    findings = lint(shown.entries, shown.request, provider, awaited=shown.awaited)
    return RequestPicture(
        name=shown.name,
        model=shown.request.model,
        window=window(shown.request.model),
        account=explain(shown.request, provider),
        findings=findings,
        steps=steps,
    )


def print_page(picture: RequestPicture) -> None:
    """Print the page."""
    output.write(request_page(picture), end="")
