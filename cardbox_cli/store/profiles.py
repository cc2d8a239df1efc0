"""Profiles in Postgres: names in `resource.profiles` that refer to boxes with a `sys.profile` card."""

from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.errors import NotFound
from cardbox_cli.model.boxes import digest
from cardbox_cli.model.card_types import PROFILE
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import NameQuery, ProjectStore
from cardbox_cli.store.projects import ensure_project


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's name and the box that stores it."""

    name: str
    profile_box_id: str
    worker_target: str
    tags: list[Any]
    updated_at: datetime | None


# Fields that both the entry of a profile and the metadata of its card contain.
_LABELS = ("name", "worker_target", "tags")
_NAMES = NameQuery("profile_names_like", "resource.profiles")


class ProfileStore(ProjectStore):
    """The profiles of one project. Names are unique regardless of case."""

    def save(self, profile: dict[str, Any], *, author_id: str) -> ProfileEntry:
        """Store a checked profile in a new box, to which its name refers from then on. Changes no other box.

        If the name already refers to an equal profile, returns its entry and writes no box.
        """
        self.database.require("resource.profiles")
        labels = {label: profile[label] for label in _LABELS}
        card = draft_card(PROFILE, JsonContent(profile), author_id=author_id, metadata=labels)
        name = profile["name"]
        with self.database.transaction():
            ensure_project(self.database, self.project_id, author_id)
            self._run("lock_profile_name", name=name)
            existing = self.find(name)
            if existing is not None and self._holds(existing, card):
                return existing
            CardStore(self.database, self.project_id).add(card)
            boxes = BoxStore(self.database, self.project_id)
            box = boxes.create([card.card_id], title=f"profile {name}")
            self._run("drop_profile_name", name=name)
            columns = {**labels, "tags": jsonb(profile["tags"]), "profile_box_id": box.box_id}
            prompt = profile.get("system_prompt", profile.get("system_prompt_template"))
            self._run("save_profile", **columns, system_prompt=prompt)
            return self.get(name)

    def _holds(self, entry: ProfileEntry, draft: CardDraft) -> bool:
        """Return whether the entry has the labels of this card, and its box contains an equal card."""
        labels = {name: draft.metadata[name] for name in _LABELS}
        if {name: getattr(entry, name) for name in _LABELS} != labels:
            return False
        try:
            view = BoxStore(self.database, self.project_id).view(entry.profile_box_id)
        except NotFound:
            return False
        return view.digest == digest([draft]) and all(slot.state == "present" for slot in view.slots)

    def get(self, name: str) -> ProfileEntry:
        """Return the profile with this name, ignoring case. Raises NotFound."""
        hint = "`cbx profile list` shows the names"
        return self._require_item(self.find(name), "profile", name, hint, names=_NAMES)

    def find(self, name: str) -> ProfileEntry | None:
        """Return the profile with this name, ignoring case, or None."""
        self.database.require("resource.profiles")
        row = self._row("profile_by_name", name=name)
        return None if row is None else _entry(row)

    def card(self, profile_box_id: str) -> Card | None:
        """Return the `sys.profile` card of a profile's box, or None if the box or the card is gone."""
        try:
            cards = BoxStore(self.database, self.project_id).view(profile_box_id).cards
        except NotFound:
            return None
        return next((card for card in cards if card.type == PROFILE), None)

    def profile_in_box(self, profile_box_id: str) -> ProfileEntry | None:
        """Return the profile in a box, even if no name refers to the box, or None if there is no profile."""
        card = self.card(profile_box_id)
        data = getattr(card and card.content, "data", None)
        if card is None or not isinstance(data, dict):
            return None
        tags = data.get("tags")
        return ProfileEntry(
            name=str(data.get("name", "")),
            profile_box_id=profile_box_id,
            worker_target=str(data.get("worker_target", "")),
            tags=tags if isinstance(tags, list) else [],
            updated_at=card.created_at,
        )

    def refuse_lost_box(self, entry: ProfileEntry) -> None:
        boxes = BoxStore(self.database, self.project_id)
        if not boxes.filter_existing([entry.profile_box_id]):
            hint = "import the profile again"
            raise NotFound(f"the box {entry.profile_box_id!r} of profile {entry.name!r} is gone", hint=hint)

    def all(self) -> list[ProfileEntry]:
        """Return all profiles of the project by name."""
        self.database.require("resource.profiles")
        return [_entry(row) for row in self._rows("list_profiles")]


def _entry(row: tuple[Any, ...]) -> ProfileEntry:
    return msgspec.convert(dict(zip(ProfileEntry.__struct_fields__, row, strict=True)), ProfileEntry)
