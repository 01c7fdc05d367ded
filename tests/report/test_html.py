"""The page: self-contained, complete, capped."""

from __future__ import annotations

import re
import time
from pathlib import Path

from keepfast.model import Kind
from keepfast.report import chart, html
from keepfast.report.book import Book
from tests.report import samples
from tests.report.test_escape import parsed


def no_diff(n: int) -> str:
    return f"--- a/kernel.c\n+++ b/kernel.c\n@@ -1 +1 @@\n-old {n}\n+new {n}\n"


def test_the_page_is_self_contained() -> None:
    page = html.render(samples.book(), no_diff)
    tree = parsed(page)
    assert "script" not in tree.tags
    assert not {(t, a) for t, a in tree.attributes if a in ("src", "srcset", "data")}
    assert not re.findall(r"https?://", page)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', page))


def test_the_page_says_what_the_text_says() -> None:
    shown = "".join(parsed(html.render(samples.book(), no_diff)).text)
    for part in (
        "2.31x over start [2.28, 2.34], measured directly, 6 rounds",
        "10 tried: 2 kept, 3 reverted, 3 rejected (2 of them cheats), 1 suspect, 1 void",
        "2.20x over start",
        "row 17, column 1023: got 0.0, expected 3.1e-04",
        "baseline numpy",
        "wrong result in case odd",
        "copy 16MB GBps",
        "SD between rounds 0.6 %",
        "new 7",
        "git merge keepfast/softmax-1",
    ):
        assert part in shown, part


def test_links_lead_to_diffs_that_are_there() -> None:
    page = html.render(samples.book(), no_diff)
    ids = set(re.findall(r'id="([^"]*)"', page))
    links = {link[1:] for link in re.findall(r'href="([^"]*)"', page)}
    assert links
    assert links <= ids


def test_an_empty_run_renders() -> None:
    page = html.render(Book(run=samples.run()), no_diff)
    assert "Nothing was proposed yet." in page
    only_start = html.render(Book(run=samples.run(), experiments=samples.experiments()[:1]), no_diff)
    assert "9.02 ms" in only_start


def test_kinds_differ_by_shape() -> None:
    page = html.render(samples.book(), no_diff)
    for kind, shape in (("keep", "circle"), ("revert", "circle"), ("reject", "path"), ("suspect", "path")):
        assert f'<{shape} class="m {kind}"' in page
    assert 'class="m void"' not in page


def test_ten_thousand_experiments_stay_small() -> None:
    book = samples.book(experiments=samples.many(10_000), directs=())
    began = time.process_time()
    page = html.render(book, no_diff)
    assert time.process_time() - began < 5
    assert len(page) < 2_000_000
    assert "of 10,000 experiments, newest first" in page
    assert "keepfast log --newest 0" in page
    assert page.count("<details") == html.DIFFS_NEWEST + html.DIFFS_MARKED


def test_a_long_diff_is_cut_and_says_so() -> None:
    page = html.render(samples.book(), lambda n: "\n".join(f"+{i}" for i in range(1000)))
    assert "600 more lines" in page


def test_marks_that_would_cover_each_other_are_counted() -> None:
    drawn = chart.draw(samples.book(experiments=samples.many(10_000), directs=()))
    assert len(drawn.marks) < 4000
    merged = [int(m.title.split(": ")[1].split()[0]) for m in drawn.marks if m.title.startswith("experiments")]
    single = sum(m.title.startswith("experiment ") for m in drawn.marks)
    tried = [e for e in samples.many(10_000)[1:] if e.verdict.kind is not Kind.VOID]
    assert sum(merged) + single == len(tried)


def test_the_curve_ends_at_the_champion() -> None:
    drawn = chart.draw(samples.book())
    last = float(drawn.path.split("V")[-1].split("H")[0])
    assert last == drawn.bars[0].y
    assert last < float(drawn.path.split(" ")[1].split("H")[0]), "faster is higher"


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "report" / "a b.html"
    html.write(samples.book(), no_diff, path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [p.name for p in path.parent.iterdir()] == ["a b.html"]
