"""The oracle on a real card: contents and answers in memory that two processes share, the lint, ceilings, and kernels that fault."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from keepfast import wire  # noqa: E402
from keepfast.gpu import layout as places  # noqa: E402
from keepfast.gpu.layout import Layout  # noqa: E402
from keepfast.gpu.messages import Answer, Ask, Describe, Described, Fill, Filled, Measure, Measured, Mutate, Mutated  # noqa: E402
from keepfast.model import Case  # noqa: E402
from keepfast.oracle import draws  # noqa: E402
from keepfast.oracle.memory import Memories  # noqa: E402
from keepfast.oracle.reference import Results  # noqa: E402
from tests.oracle import kit  # noqa: E402
from tests.oracle.test_process import SEEDS, TASKS  # noqa: E402


@pytest.fixture(scope="module")
def memories() -> Memories:
    return Memories(torch.device("cuda:0"))


def asked(judge: kit.Judge, memories: Memories, layout: Layout, image: torch.Tensor, results: Results) -> Answer:
    """As the launcher does: audit memory of our own, exported."""
    audit = places.audit(layout)
    memory = memories.made("gpu", audit.size)
    memory.image[: layout.set_bytes] = image[: layout.set_bytes]
    for name, place in draws.results(memory.image, layout, audit).items():
        place.copy_(results[name])
    torch.cuda.synchronize()
    fd = memory.descriptor()
    try:
        return judge.asked(Ask(layout.case, "gpu", audit.size), Answer, [fd])[0]  # type: ignore[no-any-return]
    finally:
        os.close(fd)
        memory.close()


@pytest.mark.parametrize("name", list(TASKS))
def test_right_and_wrong_answers_in_shared_memory(tmp_path: Path, memories: Memories, name: str) -> None:
    reference, signature, kernel = TASKS[name]
    with kit.served(kit.task(tmp_path, reference, signature), "0") as judge:
        for layout in judge.describe().layouts:
            filled, fds = judge.asked(Fill(layout.case, SEEDS, "gpu"), Filled)
            assert filled.error == ""
            bank = memories.lent("gpu", filled.bank.size, fds[0])
            os.close(fds[0])
            images = [bank.image[i * filled.bank.stride :][: layout.set_bytes].clone() for i in range(len(SEEDS))]
            bank.close()
            right = kernel(kit.values_in(images[0], layout))
            answer = asked(judge, memories, layout, images[0], right)
            assert (answer.error, answer.wrong) == ("", "")
            assert asked(judge, memories, layout, images[1], right).stale
            for result in right:
                assert asked(judge, memories, layout, images[0], right | {result: torch.zeros_like(right[result])}).wrong


@pytest.mark.alone
def test_banks_and_audits_are_given_back(tmp_path: Path, memories: Memories) -> None:
    cases = (Case("main", (("m", 4096), ("n", 8192))),)
    with kit.served(kit.task(tmp_path, kit.SOFTMAX, cases=cases), "0") as judge:
        layout = judge.layout("main")
        free = []
        for seed in range(6):
            _, fds = judge.asked(Fill("main", ((seed, 1, 2, 3),) * 4, "gpu"), Filled)
            os.close(fds[0])
            right = torch.zeros(4096, 8192, device="cuda:0")
            assert asked(judge, memories, layout, torch.zeros(layout.set_bytes, dtype=torch.uint8, device="cuda:0"), {"out": right}).wrong
            torch.cuda.empty_cache()
            free.append(torch.cuda.mem_get_info(0)[0])
    assert free[-1] > free[1] - (64 << 20)


@pytest.mark.parametrize("name", list(TASKS))
def test_the_lint_on_the_card(tmp_path: Path, name: str) -> None:
    with kit.served(kit.task(tmp_path, *TASKS[name][:2]), "0") as judge:
        found = judge.asked(Mutate(), Mutated)[0]
    assert found.error == ""
    assert all(m.killed for m in found.mutants)


@pytest.mark.alone
def test_ceilings(tmp_path: Path) -> None:
    with kit.served(kit.task(tmp_path, kit.SOFTMAX), "0") as judge:
        found: Measured = judge.asked(Measure(), Measured)[0]
    print(found)
    numbers = dict(found.numbers)
    assert {
        "copy_GBps",
        "read_GBps",
        "write_GBps",
        "bfloat16_TFLOPs",
        "float16_TFLOPs",
        "float32_TFLOPs",
        "tf32_TFLOPs",
        "int8_TOPs",
    } <= set(numbers)
    assert min(numbers.values()) > 0
    assert numbers["tf32_TFLOPs"] > 1.5 * numbers["float32_TFLOPs"]


def test_a_reference_that_faults_is_said_and_ends_the_process(tmp_path: Path) -> None:
    text = kit.SOFTMAX.replace("torch.softmax(x, -1)", "x[:, torch.full((8,), 10**6, device=x.device)]")
    with kit.served(kit.task(tmp_path, text), "0", ends=1) as judge:
        found: Described = judge.asked(Describe(), Described)[0]
        assert "CUDA error" in found.error
        assert found.where.startswith("reference.py")
        with pytest.raises(wire.Closed):
            judge.describe()


def test_a_reference_that_needs_too_much_memory_is_said(tmp_path: Path) -> None:
    text = kit.SOFTMAX.replace("torch.softmax(x, -1)", "torch.softmax(x, -1) + torch.empty(1 << 43, device=x.device)[0]")
    with kit.served(kit.task(tmp_path, text), "0") as judge:
        for _ in range(2):
            found = judge.describe()
            assert found.error.startswith("the GPU's memory is not enough")
