"""Make the tables of a database, and bring them to the newest schema version.

The baseline is version 17, and its only text is `schema.sql`. Each later change is a numbered file in this
folder, for example `0018_parcels.sql`. A database without tables of cbx gets `schema.sql`; a database of
version 17 or later gets the files that it lacks. cbx never alters a table that another program made.

To add a table, a column or an index:

1. Write the next `NNNN_name.sql` here. Begin each part with `-- makes: schema.table` (cbx runs it if the
   table is missing) or `-- changes: schema.table` (cbx runs it if it made the table itself).
2. Change `schema.sql` to the result, with the new version in its last line. Before its first change, copy it
   to `tests/store/migrations/baseline.sql`: a test upgrades that and compares it with a fresh database.
3. Name a new table in `connection/tables.py`, too.

A file is one transaction, and a statement ends with the `;` at the end of a line. Indexes on tables that grow
large need a file of their own, so that writers continue. Mark it `-- no-transaction: schema.index …`, and
build each index with CREATE INDEX CONCURRENTLY IF NOT EXISTS. Its other statements must be repeatable. A
published file never changes.
"""
