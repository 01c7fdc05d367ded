"""`--json`: the shapes are a promise, so they are kept as golden files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from msgspec.structs import replace

from keepfast.report import facts
from tests.report import samples

Golden = Callable[[str, str], None]


def test_log(golden: Golden) -> None:
    golden("log.json", facts.encode(facts.log("softmax-1", samples.experiments(), 3)) + "\n")


def test_show(golden: Golden) -> None:
    book = samples.book()
    golden("show-2.json", facts.encode(facts.show(book, book.experiments[1], "--- a\n+++ b\n")) + "\n")
    golden("show-6.json", facts.encode(facts.show(book, book.experiments[5])) + "\n")


def test_report(golden: Golden) -> None:
    golden("report.json", facts.encode(facts.report(samples.book(), html="/r/softmax-1.html")) + "\n")


def test_small_ones(golden: Golden) -> None:
    golden("ideas.json", facts.encode(facts.Ideas("keepfast.ideas/1", "softmax-rows", samples.ideas())) + "\n")
    golden("done.json", facts.encode(facts.Done("keepfast.done/1", "idea 3", False, (samples.Fact("idea", "3"),))) + "\n")


def test_a_number_that_is_none_is_null() -> None:
    e = replace(samples.experiments()[1], seconds=math.nan, verdict=replace(samples.experiments()[1].verdict, false_keep=math.inf))
    shown = json.loads(facts.encode(facts.show(samples.book(), e)))
    assert shown["experiment"]["seconds"] is None
    assert shown["false_keep"] is None


def test_json_says_what_the_text_says() -> None:
    report = json.loads(facts.encode(facts.report(samples.book())))
    assert report["champion"] == 7
    assert report["total"]["direct"] is True
    assert round(report["total"]["number"]["speedup"], 2) == 2.31
    assert report["tally"]["cheats"] == 2
    assert [k["n"] for k in report["keeps"]] == [2, 7]
