-- The embedded store. Executed once, when the file is made; PRAGMA user_version says which schema a file has.
-- A change here needs a higher SCHEMA_VERSION in sqlite.py and a step that brings older files up to it.

-- The present value of every key. Ids are time-ordered, so most inserts append to both trees.
-- The primary key is compared as bytes (BINARY), which for ASCII is the order of code points that the contract asks for.
CREATE TABLE item (
    key          TEXT    NOT NULL PRIMARY KEY,
    value        BLOB    NOT NULL,
    revision     INTEGER NOT NULL,  -- of the transaction that wrote this value
    expires_in_s REAL               -- real seconds to live after a write or after the store is opened; NULL: for ever
) STRICT;

-- Opening the store arms every expiring key; they are few among many.
CREATE INDEX expiring_item ON item (key) WHERE expires_in_s IS NOT NULL;

-- One row about the store itself.
CREATE TABLE store (
    only_row    INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    incarnation TEXT    NOT NULL,  -- random name, made with the file
    revision    INTEGER NOT NULL   -- of the last transaction that wrote something
) STRICT;
