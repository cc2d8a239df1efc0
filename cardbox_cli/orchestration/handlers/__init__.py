"""The internal handlers of cbx: a module for each, with its arguments and its record.

Commands and servers pass `HANDLERS` to what runs or shows turns. Other packages add theirs by entry points.
"""

from cardbox_cli.execution.handlers import Handler, Handlers


def own_handlers() -> tuple[Handler, ...]:
    """Import the handlers of cbx."""
    from cardbox_cli.orchestration.handlers import (
        ask_expert,
        delegate_async,
        fork_join,
        launch_principal,
        provision_agent,
        submit_result,
    )

    return (
        delegate_async.HANDLER,
        launch_principal.HANDLER,
        ask_expert.HANDLER,
        fork_join.HANDLER,
        provision_agent.HANDLER,
        submit_result.HANDLER,
    )


HANDLERS = Handlers(own_handlers)
"""Every handler that there is, those of installed packages included."""
