"""The tables of ledger.db, as migrations: entry i brings a ledger from version i to i + 1. Entries are never edited, only added."""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (id TEXT PRIMARY KEY, task TEXT NOT NULL, started REAL NOT NULL, state TEXT NOT NULL, record BLOB NOT NULL)",
        """CREATE TABLE experiments (
            run TEXT NOT NULL REFERENCES runs(id), n INTEGER NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
            tree TEXT NOT NULL, code TEXT NOT NULL, hash TEXT NOT NULL, record BLOB NOT NULL, UNIQUE (run, n))""",
        "CREATE INDEX experiments_kind ON experiments (run, kind, n)",
        "CREATE INDEX experiments_tree ON experiments (run, tree, n)",
        "CREATE INDEX experiments_code ON experiments (run, code, n)",
        "CREATE TABLE rounds (run TEXT NOT NULL, n INTEGER NOT NULL, i INTEGER NOT NULL, record BLOB NOT NULL, UNIQUE (run, n, i))",
        "CREATE TABLE directs (id INTEGER PRIMARY KEY, run TEXT NOT NULL, n INTEGER NOT NULL, against TEXT NOT NULL, record BLOB NOT NULL)",
        "CREATE INDEX directs_run ON directs (run, n)",
        "CREATE TABLE baselines (run TEXT NOT NULL, name TEXT NOT NULL, record BLOB NOT NULL, UNIQUE (run, name))",
        "CREATE TABLE calibrations (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, task_hash TEXT NOT NULL, record BLOB NOT NULL)",
        "CREATE INDEX calibrations_key ON calibrations (machine, task_hash)",
        """CREATE TABLE ideas (task TEXT NOT NULL, n INTEGER NOT NULL, text TEXT NOT NULL, author TEXT NOT NULL,
            state TEXT NOT NULL, why TEXT NOT NULL, UNIQUE (task, n))""",
        """CREATE TABLE costs (id INTEGER PRIMARY KEY, run TEXT NOT NULL, n INTEGER NOT NULL, who TEXT NOT NULL,
            dollars REAL NOT NULL, tokens INTEGER NOT NULL)""",
        "CREATE INDEX costs_run ON costs (run)",
        "CREATE TABLE events (id INTEGER PRIMARY KEY, run TEXT NOT NULL, stamp REAL NOT NULL, record BLOB NOT NULL)",
        "CREATE INDEX events_run ON events (run, id)",
        """CREATE TABLE inbox (id INTEGER PRIMARY KEY, stamp REAL NOT NULL, command TEXT NOT NULL, argument TEXT NOT NULL,
            run TEXT NOT NULL, taken REAL)""",
    ),
)
