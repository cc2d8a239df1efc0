"""The floor of every command with one query: connect, select the cards of a box in order, print them.

Arguments: a connection string and a box id.
"""

import sys

import psycopg

with psycopg.connect(sys.argv[1]) as connection:
    rows = connection.execute(
        """
        SELECT row_to_json(c)::text
        FROM card_boxes AS b
        CROSS JOIN LATERAL jsonb_array_elements_text(b.card_ids) WITH ORDINALITY AS slot (card_id, place)
        JOIN cards AS c ON c.tenant_id = b.tenant_id AND c.card_id = slot.card_id
        WHERE b.box_id = %s
        ORDER BY slot.place
        """,
        [sys.argv[2]],
    )
    for (card,) in rows:
        print(card)
