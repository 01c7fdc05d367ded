"""`python -m keepfast.engine.torch_main PLAN ANSWER [SHELF]`: does what the plan PLAN asks, and writes the account, or why there is none.
Cells lie in the folder SHELF until all are measured.

Lines that begin with `keepfast: ` are progress; `keepfast-arm: ` names the arm whose code runs from there on. Exit 0 when ANSWER was
written.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import msgspec

from keepfast.engine.transformers import ARM, INSTALL, Answer, Failure, Plan
from keepfast.errors import KeepfastError, TaskError

WHERE = "engine transformers"


def main(arguments: list[str]) -> None:
    asked, told = Path(arguments[0]), Path(arguments[1])
    answer = answered(msgspec.json.decode(asked.read_bytes(), type=Plan), Path(arguments[2]) if arguments[2:] else None)
    told.write_bytes(msgspec.json.encode(answer))


def answered(plan: Plan, shelf: Path | None = None) -> Answer:
    """Every failure is said: what the machine cannot do, what does not fit, and what nobody foresaw, with its traceback in the log."""
    try:
        import torch

        from keepfast.engine.torch_account import account
    except ImportError as error:
        return Answer(failure=Failure("machine", f"{sys.executable} has no {error.name}: {error}", WHERE, INSTALL))
    try:
        return Answer(account=account(plan, said, worn, shelf))
    except KeepfastError as error:
        kind = "task" if isinstance(error, TaskError) else "machine"
        return Answer(failure=Failure(kind, error.what, error.where, error.next_step))
    except torch.OutOfMemoryError as error:
        what = f"the card's memory is not enough: {str(error).partition('.')[0]}"
        return Answer(
            failure=Failure("machine", what, WHERE, "Fewer layers, smaller cells, or free memory of other processes (nvidia-smi)")
        )
    except Exception as error:  # noqa: BLE001  a library may raise anything; it is said, with its place in the log
        traceback.print_exc()
        lines = "".join(traceback.format_exception(error)[-2:]).strip()
        return Answer(
            failure=Failure(
                "machine", f"{type(error).__name__}: {error}\n{lines}", WHERE, 'Run it with device = "cpu" to see whether it is the card'
            )
        )


def said(line: str) -> None:
    print(f"keepfast: {line}", flush=True)


def worn(arm: str) -> None:
    print(f"{ARM}{arm}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
