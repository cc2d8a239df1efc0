"""Reads cards one by one, as the card-box library does, all of them again and again; prints how often.

Arguments: a connection string, for how many seconds, and the ids.
"""

import sys
from time import perf_counter

import psycopg

times = 0
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    end = perf_counter() + float(sys.argv[2])
    while perf_counter() < end:
        for card_id in sys.argv[3:]:
            connection.execute("SELECT * FROM public.cards WHERE card_id = %s", [card_id]).fetchone()
        times += 1
print(times)
