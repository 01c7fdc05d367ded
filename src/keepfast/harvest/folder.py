"""DIR: captured.json and samples/, written whole, read strictly: it may come from anybody.

Must not know the program that was captured, or what is made of the folder.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from keepfast.errors import UsageError
from keepfast.harvest import logs
from keepfast.harvest.records import SCHEMA, Captured, Part, Sample

NAME, SAMPLES = "captured.json", "samples"
JSON_BYTES, SAMPLE_BYTES, MANY = 64 << 20, 1 << 30, 4096
_FILE = re.compile(r"[0-9]{4}\.bin", re.ASCII)


def write(folder: Path, captured: Captured, contents: list[Path]) -> None:
    """The samples first, then the file that names them."""
    (folder / SAMPLES).mkdir(parents=True, exist_ok=True)
    for sample, path in zip(captured.samples, contents, strict=True):
        (folder / SAMPLES / sample.file).write_bytes(logs.plain_file(path, SAMPLE_BYTES))
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(captured), indent=1) + b"\n")


def read(folder: Path) -> Captured:
    """What captured.json says. UsageError, one sentence, for whatever is not as `keepfast capture` writes it."""
    try:
        data = logs.plain_file(folder / NAME, JSON_BYTES)
        captured = msgspec.json.decode(data, type=Captured)
    except FileNotFoundError:
        raise _wrong(folder, f"there is no {NAME} in it") from None
    except OSError as problem:
        raise _wrong(folder, f"{NAME} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise _wrong(folder, f"{NAME}: {problem}") from None
    why = _unfit(captured)
    if why:
        raise _wrong(folder, f"{NAME}: {why}")
    return captured


def contents(folder: Path, sample: Sample) -> bytes:
    """The bytes of a sample, exactly those that were captured."""
    try:
        data = logs.plain_file(folder / SAMPLES / sample.file, SAMPLE_BYTES)
    except (OSError, ValueError) as problem:
        raise _wrong(folder, f"{SAMPLES}/{sample.file} cannot be read: {problem}") from None
    if len(data) != sample.nbytes or hashlib.sha256(data).hexdigest() != sample.sha256:
        raise _wrong(folder, f"{SAMPLES}/{sample.file} is not what was captured")
    return data


def piece(data: bytes, part: Part) -> bytes:
    return data[part.at : part.at + part.nbytes]


def _unfit(captured: Captured) -> str:
    """Why it is none, "" when it is."""
    if captured.schema != SCHEMA:
        return f"its schema is `{captured.schema[:40]}`, this keepfast reads `{SCHEMA}`"
    if len(captured.kinds) > MANY or len(captured.samples) > MANY:
        return "too many kinds of call or samples"
    if not all(logs.fits(value) for call in captured.kinds for value in call.values):
        return "a value has a size that cannot be"
    if not all(call.seen > 0 and call.estimate > 0 for call in captured.kinds):
        return "a kind of call was never seen"
    for sample in captured.samples:
        if _FILE.fullmatch(sample.file) is None or not 0 <= sample.call < len(captured.kinds):
            return f"a sample is called `{sample.file[:40]}`, or belongs to no call"
        if not 0 <= sample.nbytes <= SAMPLE_BYTES or not all(logs.fits_part(part, sample.nbytes) for part in sample.parts):
            return f"{SAMPLES}/{sample.file} has a part that lies outside it"
    return ""


def _wrong(folder: Path, what: str) -> UsageError:
    return UsageError(what, where=str(folder), next_step="Make it again: keepfast capture TARGET --out DIR -- COMMAND")
