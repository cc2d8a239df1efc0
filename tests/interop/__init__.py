"""What `make interop` runs: cbx and the card-box library on one database, in both directions.

Not part of the ordinary tests: the library needs a newer Python and many packages, in an environment of its
own that `prepare.py` makes. Here they are two programs that know nothing of each other but the tables.
"""
