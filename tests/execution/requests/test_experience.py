"""What earlier turns with the same profile delivered."""

import re
from collections.abc import Callable

import pytest

from cardbox_cli.errors import SchemaMissing
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.claims import ack, fail
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.views.turn_contexts import ExperienceStore
from tests.conftest import PROJECT
from tests.execution import by_hand
from tests.execution.fixtures import Asked
from tests.execution.views.test_turn_plans import FILL
from tests.store.test_plans import Explaining

Run = Callable[..., str]

PROFILE = "00000000-0000-7000-9000-000000000001"
# Each turn of `FILL` delivers a card; every twentieth has the one profile.
DELIVER = """
INSERT INTO public.cards (tenant_id, card_id, content, metadata)
SELECT 'p', 'of ' || t.agent_turn_id, '{"__type__": "TextContent", "text": "Done."}',
    jsonb_build_object('type', 'task.deliverable', 'agent_turn_id', t.agent_turn_id)
FROM cbx.turns AS t;
UPDATE cbx.turns SET deliverable_card_id = 'of ' || agent_turn_id;
INSERT INTO public.cards (tenant_id, card_id, content, metadata)
VALUES ('p', 'clerk', '{"__type__": "JsonContent", "data": {"name": "clerk"}}', '{"type": "sys.profile"}');
INSERT INTO public.card_boxes (tenant_id, box_id, card_ids) VALUES ('p', 'PROFILE', '["clerk"]');
UPDATE state.agent_inbox SET payload = payload || '{"profile_box_id": "PROFILE"}'
WHERE right(agent_turn_id, 2)::integer % 20 = 0;
ANALYZE
""".replace("PROFILE", PROFILE)


@pytest.fixture
def run(runtime: Runtime, ask: Asked) -> Run:
    """Run a turn of an agent to its end, with or without a deliverable of its own; that card's id."""

    def run(agent_id: str = "clerk", *, text: str | None = "Done.", error: str | None = None) -> str:
        ask(agent_id)
        row = by_hand.take(runtime).row
        by_hand.enter(runtime, row.fence)
        card = by_hand.write(runtime, row.fence, text, "task.deliverable") if text else ""
        if error is None:
            ack(runtime, row.inbox_id, owner=by_hand.OWNER)
        else:
            fail(runtime, row.inbox_id, owner=by_hand.OWNER, error=error)
        return card

    return run


def profile(runtime: Runtime, name: str) -> str:
    """Import a profile; its box."""
    said = {"name": name, "worker_target": "worker_generic", "tags": [], "system_prompt": "Work."}
    return ProfileStore(runtime.database, PROJECT).save(said, author_id="t").profile_box_id


def delivered(runtime: Runtime, profile_box_id: str, limit: int = 9, project: str = PROJECT) -> list[str]:
    found = ExperienceStore(runtime.database, project).experience(profile_box_id, limit)
    return [card.card_id for card in found]


@pytest.mark.parametrize("keeps_ends", [True, False], ids=["with our tables", "without"])
def test_experience_consists_of_successful_deliverables_of_the_profile(
    runtime: Runtime, run: Run, ask: Asked, keeps_ends: bool
) -> None:
    first = run(text="First.")
    run(error="no model")
    run(text=None)
    second = run("scribe", text="Second.")
    deleted = run()
    runtime.cards.delete([deleted])

    renewed = profile(runtime, "Clerk")
    other = profile(runtime, "judge")
    provision(runtime.database, PROJECT, AgentRequest(agent_id="clerk", profile_name="clerk"), update=True)
    provision(runtime.database, PROJECT, AgentRequest(agent_id="j", profile_name="judge"))
    third = run(text="Third.")
    judged = run("j", text="Guilty.")
    # What a turn delivers counts when it has ended.
    ask()
    fence = by_hand.take(runtime).fence
    by_hand.enter(runtime, fence)
    by_hand.write(runtime, fence, "Half of it.", "task.deliverable")

    if not keeps_ends:
        runtime.database.connection.execute("DROP SCHEMA cbx CASCADE")
        runtime.database.clear_table_cache()
    assert delivered(runtime, renewed) == [third, second, first]
    assert delivered(runtime, renewed, limit=1) == [third]
    assert delivered(runtime, other) == [judged]
    assert delivered(runtime, renewed, project="other") == delivered(runtime, "no box") == []


def test_the_error_names_a_missing_table(database: Database) -> None:
    database.script("DROP SCHEMA state CASCADE")
    database.clear_table_cache()
    with pytest.raises(SchemaMissing, match=r"the database has no table state\.agent_inbox"):
        ExperienceStore(database, PROJECT).experience("00000000-0000-7000-8000-000000000001", 5)


def test_experience_is_read_through_indexes(target: Target) -> None:
    with Database.open_target(target) as filling:
        filling.connection.execute(FILL.encode())
        filling.connection.execute(DELIVER.encode())
    newest = [f"of turn_{number:032}" for number in range(19_980, 19_880, -20)]
    with Explaining.connect(target) as database:
        assert isinstance(database, Explaining)
        database.plans = {}
        for query in ("kept_deliverables", "left_deliverables"):
            found = ExperienceStore(database, PROJECT).experience(PROFILE, 5)
            assert [card.card_id for card in found] == newest
            plan = database.plans[query]
            assert not re.search("Seq Scan on (agent_inbox|cards)", plan)
            assert {"idx_inbox_created", "idx_cards_turn"} <= set(plan.split())
            database.script("DROP SCHEMA IF EXISTS cbx CASCADE")
            database.clear_table_cache()
