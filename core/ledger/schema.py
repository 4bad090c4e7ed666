"""The tables of ``_keys/ledger.db``; only ever appended to."""

VERSION_1 = """
CREATE TABLE usage (
    user TEXT NOT NULL,
    day TEXT NOT NULL,
    kind TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    cost INTEGER NOT NULL DEFAULT 0,
    estimated INTEGER NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user, day, kind, provider, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_day ON usage (day);
CREATE TABLE reservations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user TEXT NOT NULL,
    day TEXT NOT NULL,
    kind TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    input_price INTEGER,
    output_price INTEGER
) STRICT;
CREATE INDEX reservations_by_user ON reservations (user, day);
CREATE TABLE limits (
    user TEXT NOT NULL,
    level TEXT NOT NULL,
    dimension TEXT NOT NULL,
    most INTEGER,
    PRIMARY KEY (user, level, dimension)
) STRICT, WITHOUT ROWID;
CREATE TABLE told (
    user TEXT NOT NULL,
    day TEXT NOT NULL,
    level TEXT NOT NULL,
    dimension TEXT NOT NULL,
    PRIMARY KEY (user, day, level, dimension)
) STRICT, WITHOUT ROWID;
"""
VERSION_2 = """
CREATE TABLE purged (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    until_s INTEGER NOT NULL        -- what the clock of purges said last, as Unix time
) STRICT;
"""
MIGRATIONS = (VERSION_1, VERSION_2)
"""``MIGRATIONS[n]`` leads from version n to n + 1."""
