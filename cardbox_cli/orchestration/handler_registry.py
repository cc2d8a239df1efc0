"""All handlers that models may call: the handlers of cbx and of installed packages.

Commands and servers pass `HANDLERS` to the code that runs or shows turns. Only the first lookup loads the
handlers of cbx, because they need pydantic.
"""

from cardbox_cli.execution.handlers import Handler, Handlers


def _load_own_handlers() -> tuple[Handler, ...]:
    from cardbox_cli.orchestration import handlers

    return handlers.own_handlers()


HANDLERS = Handlers(_load_own_handlers)
