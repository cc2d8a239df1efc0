"""How databases get their tables: `schema.sql` whole where there are none, numbered files where there are.

To add a table, a column or an index, write the next `NNNN_name.sql` here, and change `schema.sql` to what a
fresh database shall have, its version in the last line, too; name a new table in `connection/tables.py` as
well. The parts of a file begin with `-- makes: schema.table` (run where that table is missing) or with `--
changes: schema.table` (run where cbx made that table: one of another program is never altered). A file is
one transaction; statements end with the `;` that ends a line. Indexes on tables that grow large have a file
of their own, marked `-- no-transaction: schema.index …`: each a CREATE INDEX CONCURRENTLY IF NOT EXISTS, so
that writers go on; what else it says can be repeated. A published file never changes; with a new one comes a
dump of the version before it, in `tests/store/migrations`, which the tests upgrade and compare with a fresh
database.
"""
