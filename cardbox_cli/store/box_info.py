"""What `card_boxes` has no column for: the titles of boxes, and how they were packed, in `cbx.box_info`.

A database that another program made may lack the table: then nothing is kept, and nothing is known.
"""

from collections.abc import Iterable, Sequence

import msgspec

from cardbox_cli.model.boxes import Provenance
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore


class BoxInfoStore(ProjectStore):
    """The box info of one project. Box ids are canonical."""

    def keep(self, box_id: str, title: str | None, provenance: Provenance | None) -> None:
        """Keep the title and the provenance of a box, in place of earlier ones, if it has either."""
        if self.database.keeps_box_info and (title is not None or provenance is not None):
            packed = None if provenance is None else jsonb(provenance)
            self._run("insert_box_info", box_id=box_id, title=title, provenance=packed)

    def keep_titles(self, titles: Iterable[tuple[str, str | None]]) -> None:
        """Keep the titles of new boxes, given with their ids, in one statement."""
        titled = [(box_id, title) for box_id, title in titles if title is not None]
        if titled and self.database.keeps_box_info:
            box_ids, texts = zip(*titled, strict=True)
            self._run("insert_box_titles", box_ids=list(box_ids), titles=list(texts))

    def titles(self, box_ids: Sequence[str]) -> dict[str, str]:
        """The titles of those of these boxes that have one."""
        if not box_ids or not self.database.keeps_box_info:
            return {}
        return dict(self._rows("box_titles", box_ids=list(box_ids)))

    def provenance(self, box_id: str) -> Provenance | None:
        """How the box was packed; None if it was not, or nobody can tell."""
        if not self.database.keeps_box_info:
            return None
        try:
            return self._one(Provenance, "provenance_of_box", box_id=box_id)
        except msgspec.ValidationError:
            # Another program wrote it: nobody knows.
            return None

    def forget(self, box_id: str) -> None:
        """Remove what is kept of a box."""
        if self.database.keeps_box_info:
            self._run("delete_box_info", box_id=box_id)
