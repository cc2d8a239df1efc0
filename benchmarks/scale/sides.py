"""The two databases that are compared, on one throw-away server, and how commands run on them."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scale import cards
from benchmarks.scale.cards import PROJECT, MarkedBox
from benchmarks.scale.telling import tell, timed
from cardbox_cli.cli.completion_candidates import complete_words
from cardbox_cli.cli.interactive_shell import Shell
from cardbox_cli.cli.session import ProcessContext, Session
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables
from cardbox_cli.store.views.completion import completion_snapshot


@dataclass(frozen=True)
class Side:
    """One of the two databases: its size in cards, a shell on it, and the boxes that rounds ask for."""

    cards: int
    target: Target
    shell: Shell
    marked: list[MarkedBox]

    def run(self, line: str) -> None:
        """Run one command to its end. Raises RuntimeError when it fails."""
        said, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(errors):
            code = self.shell.run(line)
        if code:
            raise RuntimeError(f"cbx {line}: exit code {code}: {errors.getvalue()}")

    def complete(self, words: str) -> None:
        """Look up what the Tab key offers behind `words`."""
        session = Session(project_id=PROJECT, database_url=self.target.conninfo, process=_Patient())
        # It warns of the password in its address, which is this server's.
        with redirect_stderr(io.StringIO()):
            found = complete_words([*words.split(), ""], session)
        if not found.items:
            raise RuntimeError(f"nothing completes {words!r}")


Sides = tuple[Side, Side]
"""The small one and the large one."""


class _Patient(ProcessContext):
    """Completion as it is, but for its hurry."""

    def completion_database(self, target: Target) -> AbstractContextManager[Database]:
        return completion_snapshot(target, milliseconds=60_000)


@contextmanager
def sides(small: int, large: int) -> Iterator[Sides]:
    """Two databases of so many cards each. They go in the end."""
    with TemporaryDirectory(prefix="cbx-scale-server-") as folder:
        server = EmbeddedServer(Path(folder), announce=tell)
        try:
            with _filled(server, small) as one, _filled(server, large) as other:
                yield one, other
        finally:
            server.destroy()


@contextmanager
def _filled(server: EmbeddedServer, number: int) -> Iterator[Side]:
    name = f"cards_{number}"
    with server.connect(autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    target = Target(server.conninfo(name), "the benchmark", server.home)
    with timed(f"wrote {number:,} cards"), Database.connect(target) as database:
        add_missing_tables(database)
        marked = cards.fill(database, max(1, number // cards.CARDS_PER_BOX))
    with Shell(Session(project_id=PROJECT, database_url=target.conninfo)) as shell:
        yield Side(number, target, shell, marked)
