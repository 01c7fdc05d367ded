"""docs/verdict.md against the code that it describes."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path

import pytest

from keepfast import stats
from keepfast.judge.decide import RULE, Decision, Evidence, false_keep, mde, next_step
from keepfast.model import SENTENCES, Calibration, CaseRound, Phase, Round

TEXT = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()


def section(title: str) -> str:
    return re.split(r"^#+ ", TEXT.split(f"# {title}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def calibrated(sigma: float, layout: float = 0.0) -> Calibration:
    return Calibration("m", sigma, 0.0, layout, (), 12, 0.0, 3.0, 0.0)


def test_every_reason_is_there_with_its_sentence_and_no_other() -> None:
    wanted = [[f"`{reason.value}`", kind.value, sentence] for reason, (kind, sentence) in SENTENCES.items()]
    assert rows("Reason codes") == wanted


@pytest.mark.parametrize(("where", "value"), [row[:2] for row in rows("Constants")])
def test_constants_are_the_codes(where: str, value: str) -> None:
    module, _, path = where.strip("`").partition(":")
    found = importlib.import_module(f"keepfast.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    said = math.log(float(value.removeprefix("ln "))) if value.startswith("ln ") else float(value)
    assert found == said


def test_every_constant_of_the_rule_is_there() -> None:
    said = {row[0].strip("`").rpartition(".")[2] for row in rows("Constants") if "RULE" in row[0]}
    assert said == set(RULE.__struct_fields__)


def test_the_table_of_what_the_rule_sees_is_computed() -> None:
    for sigma, layout, margin, smallest, false in rows("What the rule can see, and how often it errs"):
        calibration = calibrated(float(sigma.rstrip(" %")) / 100, float(layout.rstrip(" %")) / 100)
        assert margin == f"{calibration.margin * 100:.2f} %"
        assert smallest == f"{mde(calibration) * 100:.2f} %"
        assert false == f"{false_keep(calibration):.5f}"


def test_the_limits_said_in_words_are_computed() -> None:
    z = stats.normal_quantile
    assert f"m + {(z(1 - RULE.alpha_test) + z(RULE.power)) / math.sqrt(RULE.test):.4f} sigma" in TEXT
    assert f"0.05 * 2 Phi(-({z(1 - RULE.alpha_test):.4f} + 2 m / sigma))" in TEXT
    assert f"Phi(-3.1) = {false_keep(calibrated(1e-6, 0.01)):.5f}" in TEXT
    assert calibrated(0.006, 0.01).margin == pytest.approx(3.1 * 0.01)
    assert f"at most {RULE.screen + RULE.test_most + RULE.confirm + RULE.cases} rounds" in TEXT


def test_the_worked_example_is_what_the_rule_says() -> None:
    example = section("A worked example")

    def numbers(name: str) -> list[float]:
        line = next(line for line in example.splitlines() if line.strip().startswith(name))
        return [float(x) for x in re.findall(r"-0\.\d+", line.split("M =")[0])]

    values = {Phase.SCREEN: numbers("screen"), Phase.TEST: numbers("test"), Phase.CONFIRM: numbers("confirm")}
    measured = tuple(Round(phase, d, (CaseRound("n4096", d, 1e6, 1e6),)) for phase, found in values.items() for d in found)
    end = next_step(calibrated(0.006), Evidence(measured, opponent="experiment 2"), ())
    assert isinstance(end, Decision)
    assert f"{end.kind}: {end.detail}" in example
    for phase, alpha in ((Phase.TEST, RULE.alpha_test), (Phase.CONFIRM, RULE.alpha_confirm)):
        found = values[phase]
        assert f"M = {stats.mean(found):.4f}, SD = {stats.sample_sd(found):.4f}" in example
        bound = stats.mean(found) + stats.half_width(found, 0.006, alpha)
        assert f"{stats.mean(found):.4f} + {stats.normal_quantile(1 - alpha):.4f} * 0.006 / sqrt({len(found)}) = {bound:.4f}" in example
