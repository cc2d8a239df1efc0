"""Why a turn stands where it stands: one verdict, from one snapshot, by one registry of rules."""
