"""How HTTP comes in and how answers go out: addresses, bounds, threads, failures. Owns no answers."""
