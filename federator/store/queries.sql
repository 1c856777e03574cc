-- Every statement of the embedded store, each behind a line with its name. sqlite.py and sqlite_writer.py run them.

-- name: create_store
-- The one row about the store, when the file is made.
INSERT INTO store (only_row, incarnation, revision) VALUES (1, :incarnation, 0);

-- name: set_incarnation
UPDATE store SET incarnation = :incarnation;

-- name: get_store
SELECT incarnation, revision FROM store;

-- name: get_revision
SELECT revision FROM store;

-- name: set_revision
UPDATE store SET revision = :revision;

-- name: get_item
SELECT key, value, revision FROM item WHERE key = :key;

-- name: list_revisions
-- What comparisons and deletes look at; values are not read. The list is made as long as it has to be.
SELECT key, revision FROM item WHERE key IN (?);

-- name: list_items
-- One page: keys from :prefix up to :end (not included), strictly after :after ('' is before every key).
SELECT key, value, revision FROM item
WHERE key >= :prefix AND key < :end AND key > :after
ORDER BY key
LIMIT :limit;

-- name: list_all
SELECT key, value FROM item ORDER BY key;

-- name: list_expiring
SELECT key, expires_in_s FROM item WHERE expires_in_s IS NOT NULL;

-- name: put_item
-- For several rows at once, the list of values is repeated.
INSERT INTO item (key, value, revision, expires_in_s) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET value = excluded.value, revision = excluded.revision, expires_in_s = excluded.expires_in_s;

-- name: delete_item
DELETE FROM item WHERE key IN (?);
