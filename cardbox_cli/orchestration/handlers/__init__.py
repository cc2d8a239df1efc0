"""The internal handlers of cbx: a module for each, with its arguments and its record.

`execution/handlers.py` finds them here by name; other packages add theirs by entry points.
"""

from cardbox_cli.execution.handlers import Handler
from cardbox_cli.orchestration.handlers import (
    ask_expert,
    delegate_async,
    fork_join,
    launch_principal,
    provision_agent,
    submit_result,
)

HANDLERS: tuple[Handler, ...] = (
    delegate_async.HANDLER,
    launch_principal.HANDLER,
    ask_expert.HANDLER,
    fork_join.HANDLER,
    provision_agent.HANDLER,
    submit_result.HANDLER,
)
