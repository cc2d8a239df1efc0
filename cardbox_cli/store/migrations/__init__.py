"""Creation of the tables of a database, and upgrades to the newest schema version.

The baseline is version 17, which only `schema.sql` defines. Each later change is a numbered file in this
folder, for example `0018_parcels.sql`. A database without tables of cbx gets `schema.sql`. A database of
version 17 or later gets the files that it lacks. cbx never alters a table that another program created.

To add a table, a column or an index:

1. Write the next `NNNN_name.sql` here. Begin each part with `-- makes: schema.table` (cbx runs it if the
   table is missing) or `-- changes: schema.table` (cbx runs it if cbx created the table).
2. Change `schema.sql` to the result, with the new version in its last line. Before its first change, copy it
   to `tests/store/migrations/baseline.sql`. A test upgrades that copy and compares it with a new database.
3. Add a new table to `connection/tables.py`.

A file is one transaction. A statement ends with a `;` at the end of a line. An index on a large table needs
its own file, so that it does not block writers. Mark the file `-- no-transaction: schema.index …`, and build
each index with CREATE INDEX CONCURRENTLY IF NOT EXISTS. Its other statements must be repeatable. A published
file never changes.
"""
