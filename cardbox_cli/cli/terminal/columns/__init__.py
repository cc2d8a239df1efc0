"""What the columns of tables say, for each kind of item, and which of them a person wants.

The one home of the columns of lists: what is shown unasked, and what by `--columns`. How a table is laid out
is for `tables/layout.py` to decide.
"""
