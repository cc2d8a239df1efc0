"""JSON files of any size: `window` finds where a value begins and ends, `documents` reads on."""
