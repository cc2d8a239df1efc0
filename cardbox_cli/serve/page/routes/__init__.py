"""The pages, by what they show."""

from fastapi import APIRouter

from cardbox_cli.serve.page.links import PREFIX
from cardbox_cli.serve.page.routes import (
    around,
    batches,
    boxes,
    chats,
    costs,
    differences,
    requests,
    search,
    start,
    turns,
)

routes = APIRouter(include_in_schema=False)
"""All of them, for the app to take in."""

for each in (start, turns, boxes, requests, differences, costs, batches, chats, search):
    routes.include_router(each.routes, prefix=f"{PREFIX}/{{project}}")
# Behind all others: what no other route takes is no page.
routes.include_router(around.routes)
