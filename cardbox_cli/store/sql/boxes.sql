-- fragment: ids
CASE WHEN jsonb_typeof(b.card_ids) = 'array' THEN b.card_ids ELSE '[]' END

-- fragment: uuid_pattern
-- A payload of another program may contain any text, for which a cast fails. Braces would include a fragment.
('^' || repeat('[0-9a-f]', 8) || repeat('-' || repeat('[0-9a-f]', 4), 3) || '-' || repeat('[0-9a-f]', 12) || '$')

-- fragment: card_of_slot
-- The card of a place of a box. OFFSET forces one lookup per place: the planner assumes a hundred places for any box,
-- and would read all cards of the project instead.
LATERAL (
    SELECT c.* FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.card_id = slot.card_id OFFSET 0
) AS c

-- fragment: box_json
json_build_object(
    'box_id', b.box_id,
    'project_id', b.tenant_id,
    'title', NULL,
    'card_ids', {ids},
    'parent_ids', CASE WHEN jsonb_typeof(b.parent_ids) = 'array' THEN b.parent_ids ELSE '[]' END,
    'updated_at', {instant(b.updated_at)}
)::text

-- name: insert_box
-- Writes the box unless its id is taken. Returns the time, but not the ids, which the caller has.
INSERT INTO public.card_boxes AS b (tenant_id, box_id, card_ids, parent_ids, updated_at)
VALUES (%(project_id)s, %(box_id)s, %(card_ids)s, %(parent_ids)s, {moment})
ON CONFLICT DO NOTHING
RETURNING b.updated_at

-- name: boxes_by_ids
-- The project's boxes with these ids, in no order.
SELECT {box_json}
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: api_boxes
-- The boxes with these ids, in no order: the id, and the list of card ids as JSON.
SELECT b.box_id::text, {ids}::text
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: existing_boxes
-- The given ids that are boxes of the project.
SELECT b.box_id::text
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: box_id_lists
-- Only the id lists of these boxes, in no order: packing reads nothing else.
SELECT b.box_id::text, ({ids})::text
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: slice_of_box
-- The ids of a box in order, from `start` (included) to `end` (excluded).
SELECT coalesce(b.card_ids ->> at.place, 'null')
FROM public.card_boxes AS b
CROSS JOIN LATERAL generate_series(%(start)s::integer, least(%(end)s::integer, jsonb_array_length({ids})) - 1)
    AS at (place)
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
ORDER BY at.place

-- name: lock_box
-- The box, locked.
SELECT {box_json}
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
FOR UPDATE

-- name: share_box
-- Returns whether the box exists. No other transaction can change it until this one ends.
SELECT true FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s FOR SHARE

-- fragment: box_is_in_range
    (%(since)s::timestamptz IS NULL OR b.updated_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR b.updated_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (b.updated_at, b.box_id) < (%(after_time)s::timestamptz, %(after_id)s::uuid))

-- name: list_boxes
-- A page of the project's boxes, last changed first, after the position (updated_at, box_id) if one is given.
SELECT {box_json}
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND {box_is_in_range}
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: recent_boxes
-- The ids of the project's boxes, last changed first.
SELECT b.box_id::text, b.updated_at
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: append_to_box
-- Appends ids if dangling ids are allowed or each id has a card. Concurrent appends wait for the row, one after the
-- other. Returns the new length.
UPDATE public.card_boxes AS b
SET card_ids = ({ids}) || %(card_ids)s, updated_at = {moment}
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
    AND (%(allow_dangling)s OR NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(%(card_ids)s) AS given (card_id)
        WHERE NOT EXISTS (
            SELECT FROM public.cards AS c
            WHERE c.tenant_id = %(project_id)s AND c.card_id = given.card_id AND c.deleted_at IS NULL)))
RETURNING jsonb_array_length(b.card_ids)

-- name: put_into_box
-- Appends ids to a box unless it contains them. Returns whether the box exists.
WITH put AS (
    UPDATE public.card_boxes AS b
    SET card_ids = ({ids}) || %(card_ids)s::jsonb, updated_at = {moment}
    WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s::uuid AND NOT ({ids}) @> %(card_ids)s::jsonb
)
SELECT EXISTS (
    SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s::uuid)

-- name: replace_box
-- Replaces the id list.
WITH b AS (
    UPDATE public.card_boxes AS b
    SET card_ids = %(card_ids)s, updated_at = {moment}
    WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
    RETURNING b.*
)
SELECT {box_json} FROM b

-- name: delete_box
-- Deletes the box. Its cards stay.
DELETE FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
RETURNING b.box_id

-- fragment: card_state
-- The time is a subquery because shards evaluate nothing volatile in CASE.
CASE WHEN c.card_id IS NULL THEN 'dangling'
     WHEN c.deleted_at IS NOT NULL THEN 'deleted'
     WHEN c.expires_at <= (SELECT {now}) THEN 'expired'
     ELSE 'present' END

-- fragment: places
-- The ids of a box in order, or only those from position `first` to `last`, each with its place from 1 and the row of
-- its card. The subquery sorts ids instead of cards, which are long.
FROM (
    SELECT slot.card_id, slot.place
    FROM public.card_boxes AS b
    CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE WHEN %(first)s::integer IS NULL THEN {ids}
             ELSE jsonb_path_query_array({ids}, '$[$first to $last]',
                 jsonb_build_object('first', %(first)s::integer, 'last', %(last)s::integer)) END)
        WITH ORDINALITY AS slot (card_id, place)
    WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
    ORDER BY slot.place
) AS slot
LEFT JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND c.card_id = slot.card_id

-- name: slots_of_box
-- The places of a box in order, or only those from position `first` to `last`: the id, the state of its card, and the
-- card.
SELECT (coalesce(%(first)s::integer, 0) + slot.place - 1)::integer, coalesce(slot.card_id, 'null'), {card_state},
    CASE WHEN c.card_id IS NOT NULL THEN {card_json} END
{places}
ORDER BY slot.place

-- name: box_in_short
-- A box with the number of its ids instead of the ids.
SELECT json_build_object(
    'box_id', b.box_id,
    'length', jsonb_array_length({ids}),
    'parent_ids', CASE WHEN jsonb_typeof(b.parent_ids) = 'array' THEN b.parent_ids ELSE '[]' END,
    'updated_at', {instant(b.updated_at)}
)::text
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s

-- fragment: card_size
coalesce(octet_length(c.content::text), 0) + coalesce(octet_length(c.tool_calls::text), 0)
    + coalesce(octet_length(c.metadata::text), 0)

-- name: window_of_box
-- Places `first` to `last` of a box in order, from 0: the id, the state of its card, the size of its JSON in bytes, and
-- the card. A card of more bytes than `whole` has its type, its role and the beginning of its content instead.
SELECT (%(first)s + slot.place - 1)::integer, coalesce(slot.card_id, 'null'),
    {card_state}, {card_size},
    (SELECT {card_json} WHERE c.card_id IS NOT NULL AND {card_size} <= %(whole)s),
    {card_type}, c.metadata ->> 'role', left(coalesce(c.content ->> 'text', c.content::text), %(beginning)s)
FROM public.card_boxes AS b
CROSS JOIN LATERAL jsonb_array_elements_text(jsonb_path_query_array(
    {ids}, '$[$first to $last]', jsonb_build_object('first', %(first)s::integer, 'last', %(last)s::integer)))
    WITH ORDINALITY AS slot (card_id, place)
LEFT JOIN public.cards AS c ON c.tenant_id = b.tenant_id AND c.card_id = slot.card_id
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s
ORDER BY slot.place

-- name: known_cards
-- The cards with these ids and their states, including deleted and expired cards, in no order.
SELECT c.card_id, {card_state}, {card_json}
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s)

-- name: card_states
-- The states of the cards with these ids that exist, in no order.
SELECT c.card_id, {card_state}
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s)

-- fragment: latest_boxes
-- The boxes of the project that changed last, at most `latest` of them, the last first.
(SELECT latest.* FROM public.card_boxes AS latest
 WHERE latest.tenant_id = %(project_id)s
 ORDER BY latest.updated_at DESC, latest.box_id DESC
 LIMIT %(latest)s)

-- name: boxes_of_card
-- A page of the boxes that contain a card, among those that changed last, the last first. It begins after the position
-- (updated_at, box_id) if one is given. Returns the box, the card's positions in order, the length of the box, and
-- when it changed.
SELECT json_build_object(
    'box_id', b.box_id,
    'positions', ARRAY(
        SELECT slot.place - 1
        FROM jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
        WHERE slot.card_id = %(card_id)s ORDER BY slot.place),
    'cards', jsonb_array_length({ids}),
    'updated_at', {instant(b.updated_at)}
)::text
FROM {latest_boxes} AS b
WHERE b.card_ids @> jsonb_build_array(%(card_id)s::text)
    AND (%(after_time)s::timestamptz IS NULL
         OR (b.updated_at, b.box_id) < (%(after_time)s::timestamptz, %(after_id)s::uuid))
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: boxes_holding_cards
-- For each of these cards, the box that changed first among the `latest` last changed boxes that contain the card.
SELECT DISTINCT ON (wanted.card_id) wanted.card_id, b.box_id::text
FROM {latest_boxes} AS b
JOIN unnest(%(card_ids)s::text[]) AS wanted (card_id) ON b.card_ids ? wanted.card_id
WHERE b.card_ids ?| %(card_ids)s
ORDER BY wanted.card_id, b.updated_at, b.box_id

-- name: count_boxes_of_card
-- The number of boxes that hold a card, among those that changed last.
SELECT count(*)
FROM {latest_boxes} AS b
WHERE b.card_ids @> jsonb_build_array(%(card_id)s::text)

-- name: has_more_boxes
-- Returns whether the project has more boxes than `latest`.
SELECT EXISTS (SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s OFFSET %(latest)s)

-- name: json_of_box
-- The places of a box in order, or only those from position `first` to `last`: the id, and the card's JSON if a reader
-- sees the card. Leaves out cards of other types than the given ones.
SELECT coalesce(slot.card_id, 'null'), CASE WHEN c.card_id IS NOT NULL AND {visible} THEN {card_json} END
{places}
WHERE %(types)s::text[] IS NULL OR c.card_id IS NULL OR NOT ({visible}) OR {card_type} = ANY(%(types)s)
ORDER BY slot.place

-- name: find_box_ids
-- Up to six boxes for each match. The id is between `first` and `last`, or matches the pattern without dashes and read
-- backwards, or its last 8 characters match `shown`, unless that is null.
(SELECT b.box_id::text FROM public.card_boxes AS b
 WHERE b.tenant_id = %(project_id)s AND b.box_id BETWEEN %(first)s::uuid AND %(last)s::uuid LIMIT 6)
UNION
(SELECT b.box_id::text FROM public.card_boxes AS b
 WHERE b.tenant_id = %(project_id)s AND reverse(replace(b.box_id::text, '-', '')) LIKE %(reversed_pattern)s
 LIMIT 6)
UNION
(SELECT b.box_id::text FROM public.card_boxes AS b
 WHERE b.tenant_id = %(project_id)s AND right(b.box_id::text, 8) LIKE %(shown)s
 LIMIT 6)

-- name: boxes_of_profile
-- The names of the profiles that point to a box.
SELECT p.name FROM resource.profiles AS p
WHERE p.project_id = %(project_id)s AND p.profile_box_id = %(box_id)s

-- fragment: first_card
LEFT JOIN LATERAL (
    SELECT c.metadata ->> 'type' AS type, c.metadata ->> 'author_id' AS author, c.metadata ->> 'agent_turn_id' AS turn
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.card_id = b.card_ids ->> 0) AS first ON true

-- fragment: kept_info
LEFT JOIN cbx.box_info AS i ON i.project_id = %(project_id)s AND i.box_id = b.box_id

-- fragment: no_info
CROSS JOIN (SELECT NULL::text AS title, NULL::jsonb AS provenance) AS i

-- fragment: box_kind
-- The kind of a box. It is empty if its first card, its provenance and its title do not determine the kind.
CROSS JOIN LATERAL (SELECT
    CASE WHEN i.title LIKE 'request of step\_%%' THEN 'request'
         WHEN i.provenance IS NOT NULL THEN 'context'
         WHEN first.author = %(importer)s THEN 'conversation'
         WHEN first.type = ANY(%(snapshots)s) THEN 'request'
         WHEN first.type = %(profile)s THEN 'profile'
         WHEN first.turn IS NOT NULL THEN 'output'
         ELSE '' END) AS kind (name)

-- fragment: internal_kind
-- The kind of a box that only cbx reads: the request box of a step, or a box of a profile or snapshots alone. NULL for
-- any other box.
CASE WHEN i.title LIKE 'request of step\_%%' THEN 'request'
     WHEN NOT EXISTS (
         SELECT FROM jsonb_array_elements_text({ids}) AS slot (card_id)
         CROSS JOIN {card_of_slot}
         WHERE coalesce(c.metadata ->> 'type', '') <> ALL (%(internal)s::text[]))
     THEN (
         SELECT CASE WHEN bool_or(c.metadata ->> 'type' = %(profile)s) THEN 'profile' ELSE 'request' END
         FROM jsonb_array_elements_text({ids}) AS slot (card_id)
         CROSS JOIN {card_of_slot}
         HAVING count(*) > 0) END

-- name: boxes_to_inherit
-- The id lists of these boxes, in no order, each with its internal kind.
SELECT b.box_id::text, ({ids})::text, {internal_kind}
FROM public.card_boxes AS b {kept_info}
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: boxes_to_inherit_without_info
-- The same if the database has no table of titles.
SELECT b.box_id::text, ({ids})::text, {internal_kind}
FROM public.card_boxes AS b {no_info}
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: list_boxes_by_kind
-- A page of the boxes of these kinds, last changed first: id and kind.
SELECT b.box_id::text, kind.name
FROM public.card_boxes AS b {first_card} {kept_info} {box_kind}
WHERE b.tenant_id = %(project_id)s AND kind.name = ANY(%(kinds)s) AND {box_is_in_range}
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: list_boxes_by_kind_without_info
-- `list_boxes_by_kind` for a database without a table of titles.
SELECT b.box_id::text, kind.name
FROM public.card_boxes AS b {first_card} {no_info} {box_kind}
WHERE b.tenant_id = %(project_id)s AND kind.name = ANY(%(kinds)s) AND {box_is_in_range}
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- fragment: next_boxes
(SELECT * FROM public.card_boxes AS b
 WHERE b.tenant_id = %(project_id)s AND {box_is_in_range}
 ORDER BY b.updated_at DESC, b.box_id DESC
 LIMIT %(limit)s) AS b

-- name: count_boxes_by_kind
-- The number of boxes of each kind, among the next `limit` boxes after a position.
SELECT kind.name, count(*) FROM {next_boxes} {first_card} {kept_info} {box_kind} GROUP BY kind.name

-- name: count_boxes_by_kind_without_info
-- `count_boxes_by_kind` for a database without a table of titles.
SELECT kind.name, count(*) FROM {next_boxes} {first_card} {no_info} {box_kind} GROUP BY kind.name

-- name: insert_box_info
-- Writes the title and the provenance, for which card_boxes has no columns.
INSERT INTO cbx.box_info (project_id, box_id, title, provenance, created_at)
VALUES (%(project_id)s, %(box_id)s, %(title)s, %(provenance)s, {now})
ON CONFLICT (project_id, box_id) DO UPDATE SET title = EXCLUDED.title, provenance = EXCLUDED.provenance

-- name: insert_box_titles
-- Writes the titles of new boxes.
INSERT INTO cbx.box_info (project_id, box_id, title, created_at)
SELECT %(project_id)s, t.box_id, t.title, {now}
FROM unnest(%(box_ids)s::uuid[], %(titles)s::text[]) AS t (box_id, title)
ON CONFLICT (project_id, box_id) DO UPDATE SET title = EXCLUDED.title, provenance = NULL

-- name: box_titles
-- The titles of these boxes.
SELECT i.box_id::text, i.title
FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id = ANY(%(box_ids)s::uuid[]) AND i.title IS NOT NULL

-- name: provenance_of_box
-- The provenance of a box, if packing made the box.
SELECT i.provenance::text
FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id = %(box_id)s AND i.provenance IS NOT NULL

-- name: delete_box_info
-- Deletes the title and the provenance of a deleted box.
DELETE FROM cbx.box_info AS i WHERE i.project_id = %(project_id)s AND i.box_id = %(box_id)s
