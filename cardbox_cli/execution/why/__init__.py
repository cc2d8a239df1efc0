"""Why a turn stands where it stands: one verdict, from one snapshot of the database, by one registry of rules."""
