CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER
);

CREATE TABLE files (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    added_ms INTEGER NOT NULL,
    body TEXT NOT NULL
);

-- Rows are written once: a plan never changes.
CREATE TABLE plans (
    number INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    object TEXT NOT NULL,
    made_ms INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX plans_by_object ON plans (object, number);

-- What each router told last, for people: decisions wait for what it tells anew.
CREATE TABLE routers (
    name TEXT PRIMARY KEY,
    seen_ms INTEGER NOT NULL,
    body TEXT NOT NULL
);

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL
);
