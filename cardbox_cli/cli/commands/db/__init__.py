"""`cbx db`: the database behind it all: the embedded server's life, the tables, psql."""

from cardbox_cli.cli.tree import noun

VERBS = {
    "start": "Start the embedded server.",
    "stop": "Stop the embedded server. Nothing is lost.",
    "status": "Show which database commands use, and what it holds.",
    "url": "Print the database's address for other programs.",
    "psql": "Open psql on the database.",
    "init": "Add the tables that are missing, or print their SQL.",
    "upgrade": "Bring an older database to this cbx's schema version.",
    "distribute": "Spread the tables over the nodes of a Citus cluster, by project.",
    "index-text": "Build the indexes that make searching fast.",
    "gc": "Purge expired cards for ever.",
    "destroy": "Stop the embedded server and delete all of its data.",
}
command = noun(__name__, VERBS)
