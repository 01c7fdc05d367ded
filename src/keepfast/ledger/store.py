"""The one connection to ledger.db: opening, migrating, transactions, and every SQLite error turned into a sentence.

Knows SQLite and nothing of runs or experiments. Records are stored as MessagePack, which keeps infinities and NaN as they are.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from keepfast.errors import LedgerError, UsageError
from keepfast.ledger.schema import MIGRATIONS

BUSY_SECONDS = 20.0
FILE = "ledger.db"
T = TypeVar("T")
Cell = str | int | float | bytes | None


class Store:
    """A connection with explicit transactions. Every error is a LedgerError that says what to do."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, readonly: bool) -> Self:
        with errors(path):
            store = cls(path, _read(path) if readonly else _write(path))
        try:
            store._migrate(readonly)
        except LedgerError:
            store.close()
            raise
        return store

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and on disk (synchronous FULL) when the block is left without an error."""
        with errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def execute(self, sql: str, *cells: Cell) -> int:
        """Run one statement; the number of rows that it changed."""
        with errors(self.path):
            return self._connection.execute(sql, cells).rowcount

    def insert(self, sql: str, *cells: Cell) -> int:
        """Run one INSERT; the id of the new row."""
        with errors(self.path):
            return self._connection.execute(sql, cells).lastrowid or 0

    def rows(self, sql: str, *cells: Cell) -> list[Any]:
        with errors(self.path):
            return self._connection.execute(sql, cells).fetchall()

    def each(self, sql: str, *cells: Cell) -> Iterator[Any]:
        """Rows one by one, for tables that need not fit into memory."""
        with errors(self.path):
            yield from self._connection.execute(sql, cells)

    def one(self, sql: str, *cells: Cell) -> Any:
        """The first row, or None."""
        with errors(self.path):
            return self._connection.execute(sql, cells).fetchone()

    def version(self) -> int:
        return int(self.one("PRAGMA user_version")[0])

    def _migrate(self, readonly: bool) -> None:
        version = self.version()
        if version > len(MIGRATIONS):
            raise LedgerError("was written by a newer keepfast", where=str(self.path), next_step="pip install --upgrade keepfast")
        if version == len(MIGRATIONS):
            return
        if readonly:
            step = "keepfast run --resume   brings it up to date"
            raise LedgerError("was written by an older keepfast", where=str(self.path), next_step=step)
        with self.transaction():
            for statements in MIGRATIONS[self.version() :]:
                for sql in statements:
                    self._connection.execute(sql)
            self._connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _write(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _read(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise UsageError("no ledger here yet", where=str(path), next_step="keepfast run TASK")
    wal = Path(f"{path}-wal")
    # A reader of a write-ahead log must create files beside it. Where it cannot and there is no log, the file is all there is.
    still = not os.access(path.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system say into a LedgerError."""
    try:
        yield
    except sqlite3.Error as error:
        raise _sentence(str(error), path) from error
    except OSError as error:
        raise _sentence(f"{error.strerror or error}: {error.filename or path}", path) from error


HINTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("full", "no space", "quota"), "the disk is full", "free some space (df; keepfast gc), then keepfast run --resume"),
    (
        ("readonly", "read-only", "permission", "unable to open"),
        "cannot be written: read-only, or not yours",
        "ls -ld the folder, and mend its rights",
    ),
    (("locked", "busy"), "another process keeps the ledger busy", "wait for it, or see who it is: keepfast status"),
    (
        ("malformed", "not a database", "corrupt"),
        "is damaged",
        "sqlite3 ledger.db .recover   into a new file; the candidates are safe in git under refs/keepfast",
    ),
    (("disk i/o",), "the disk reports an error", "look at `dmesg` and `df`, then keepfast run --resume"),
)


def _sentence(text: str, path: Path) -> LedgerError:
    said = next(((what, step) for words, what, step in HINTS if any(w in text.lower() for w in words)), None)
    if said is None:
        return LedgerError(f"the ledger cannot be used: {text}", where=str(path), next_step="keepfast doctor")
    return LedgerError(f"{said[0]} ({text}); what was written before is safe", where=str(path), next_step=said[1])


# --------------------------------------------------------------------------------------------- records


def encode(record: msgspec.Struct) -> bytes:
    """A record as bytes. Half surrogates, which only broken text has, become question marks."""
    try:
        return msgspec.msgpack.encode(record)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_clean(msgspec.to_builtins(record)))


def decode(blob: bytes, kind: type[T], where: str) -> T:
    """The record in `blob`; LedgerError when it is not one."""
    try:
        return msgspec.msgpack.decode(blob, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LedgerError(f"holds a record that cannot be read: {error}", where=where, next_step="keepfast doctor") from error


def text(value: str) -> str:
    """`value` as SQLite can store it."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _clean(value: object) -> object:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, Sequence) and not isinstance(value, bytes) else value
