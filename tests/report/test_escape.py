"""Nothing that a candidate, a compiler or a patch says reaches a terminal or a page as anything but text."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast.model import Experiment, Fact, Idea, Reason, Rung
from keepfast.report import facts, html, live, show, summary, text
from keepfast.report.book import Book
from keepfast.report.escape import clip, fold, line, lines, width
from tests.report import samples

ATTACKS = [
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "abc\rkeep +900 %",
    "a\nb",
    "\u202egnp.exe",
    "\u2066\u2067\u2068",
    "</title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "[bold red]markup[/bold red]",
    "\ud800",
    "\x00",
    "line\u2028separator\u2029",
    "wide 字字字",
    "-->]]></svg>",
]
hostile = st.one_of(st.text(max_size=80), st.sampled_from(ATTACKS), st.text(alphabet="\x1b[]m0;1\x07<>&\"'\u202e\n\r\t", max_size=40))
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def printable(shown: str) -> bool:
    return all(c.isprintable() for c in shown)


@given(hostile)
@quick
def test_a_line_is_one_printable_line(words: str) -> None:
    assert printable(line(words))
    assert all(printable(one) for one in lines(words))
    if words.isascii() and words.isprintable():
        assert line(words) == words


@given(hostile, st.integers(min_value=1, max_value=40))
@quick
def test_clip_and_fold_keep_to_the_columns(words: str, columns: int) -> None:
    assert width(clip(line(words), columns)) <= columns
    assert all(width(one) <= max(2, columns) for one in fold(line(words), columns))
    assert "".join(fold(line(words), columns)).replace(" ", "") == line(words).replace(" ", "")


def poisoned(reason: Reason, words: str) -> Experiment:
    v = replace(
        samples.verdict(reason, detail=words, rungs=(Rung("build", False, 0.1, (Fact(words, words),)),)),
        cases=(samples.case_time(words, 3.0, 1e6, words),),
        gain=samples.estimate(3.0, opponent=words),
        test=samples.estimate(3.0, opponent=words),
        walls=words,
    )
    fields: dict[str, Any] = {"proposer": words, "source": words, "commit": words, "idea": 1, "tunables": ((words, words),)}
    return samples.experiment(2, words, v, 1.0, **fields)


def poisoned_book(words: str) -> Book:
    start = samples.experiments()[0]
    bad = tuple(
        replace(poisoned(r, words), n=i + 2)
        for i, r in enumerate((Reason.FASTER, Reason.NO_GAIN, Reason.BUILD, Reason.TOO_FAST, Reason.MACHINE))
    )
    machine = replace(samples.MACHINE, cpu=words, compiler=words, gpu=words, kernel=words, walls=words, ceilings=((words, 1.0),))
    run = replace(
        samples.run(settings=((words, words), ("goal", "2"), ("over", words)), state=words, title=words),
        id=words,
        task=words,
        branch=words,
        machine=machine,
    )
    return samples.book(
        run=run,
        task=None,
        experiments=(start, *bad),
        directs=(
            samples.Direct(2, words, samples.estimate(1.0, opponent=words), (samples.case_time(words, 1.0, 1e6),), True, samples.BEGAN),
        ),
        baselines=(samples.BaselineResult(words, False, words, samples.estimate(1.0, opponent=words)),),
        ideas=(Idea(1, words, "agent", "dead", words),),
    )


@given(hostile)
@quick
def test_no_text_view_lets_anything_through(words: str) -> None:
    book = poisoned_book(words)
    shown = [
        *text.log(book.experiments),
        *text.status(book, words),
        *summary.morning(book),
        *summary.end(book, words),
        *(one for e in book.experiments for one in show.show(book, e, rounds=True)),
        *(one for e in book.experiments for one in text.verdict_lines(e)),
        live.champion_text([e for e in book.experiments if e.verdict.kept], list(book.directs)),
        *(live.direct_text(d) for d in book.directs),
    ]
    assert all(printable(one) for one in shown), [one for one in shown if not printable(one)]


@given(hostile)
@quick
def test_json_is_ascii_and_whole(words: str) -> None:
    book = poisoned_book(words)
    for record in (facts.log("r", book.experiments, 0), facts.report(book), *(facts.show(book, e, words) for e in book.experiments)):
        encoded = facts.encode(record)
        assert encoded.isascii()
        assert all(c.isprintable() or c == "\n" for c in encoded)
        assert json.loads(encoded)["schema"].startswith("keepfast.")
        assert "\n" not in facts.encode_line(record)


class Page(HTMLParser):
    """Collects what a browser would build."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(page: str) -> Page:
    parser = Page()
    parser.feed(page)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def render() -> Callable[[str], Page]:
    return lambda words: parsed(html.render(poisoned_book(words), lambda n: f"--- a\n+++ b\n@@ -1 +1 @@\n-{words}\n+{words}"))


@given(hostile)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_page_has_the_same_elements_whatever_the_text(render: Callable[[str], Page], words: str) -> None:
    plain, page = render("harmless"), render(words)
    assert set(page.tags) <= set(plain.tags)
    assert page.attributes <= plain.attributes
    assert "script" not in page.tags
    assert all(c.isprintable() or c == "\n" for part in page.text for c in part)


@pytest.mark.parametrize("words", ATTACKS)
def test_known_attacks_on_a_page(render: Callable[[str], Page], words: str) -> None:
    page = render(words)
    assert not {"script", "img", "comment"} & set(page.tags)
    assert not [a for _, a in page.attributes if a.startswith("on") or a == "src"]
    shown = "".join(page.text)
    assert line(words)[:40] in shown


def test_markup_of_the_terminal_library_is_text() -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    with live.Live(samples.task(), samples.run(), Console(file=out, width=100, force_terminal=False)) as shown:
        shown(live.Event("note", "[bold red]x[/bold red] [link=http://a]y[/link]"))
    assert "[bold red]x[/bold red] [link=http://a]y[/link]" in out.getvalue()
