"""A run outside its turns: named, begun, cleared, finished, tidied up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import lifecycle, loop, model
from keepfast.errors import TaskError, UsageError
from keepfast.ledger import Ledger
from keepfast.repo import Repo
from keepfast.testing import RecordedJudge, keep, reject, revert
from tests.loop import kit

SUSPECT = replace(keep(1.3), kind=model.Kind.SUSPECT, reason=model.Reason.TOO_FAST)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return kit.repository(tmp_path)


@pytest.fixture
def repo(where: Path) -> Repo:
    return Repo.find(where)


@pytest.fixture
def ledger(repo: Repo) -> Iterator[Ledger]:
    with Ledger.open(repo.ensure_state()) as opened:
        yield opened


def done(where: Path, ledger: Ledger, *verdicts: model.Verdict, titles: tuple[str, ...] = ()) -> model.Run:
    script = kit.proposals(*(kit.kernel(i + 1) for i in range(len(verdicts))))
    named = tuple(replace(p, title=titles[i]) if i < len(titles) else p for i, p in enumerate(script))
    return loop.run(kit.session(where, ledger, named, RecordedJudge(list(verdicts)))).run


def show(folder: Path, branch: str, form: str = "%an|%ae|%s") -> list[str]:
    return kit.git(folder, "log", f"--format={form}", branch).splitlines()


# --------------------------------------------------------------------------------------------- a new run


@pytest.mark.parametrize(
    ("name", "run_id"),
    [("softmax", "softmax-1"), ("Soft Max é", "soft-max-e-1"), ("рядок", "task-1"), ("..a.lock", "a-lock-1"), ("-x~^:?*[\\ ", "x-1")],
)
def test_a_run_has_a_name_that_git_takes(where: Path, repo: Repo, ledger: Ledger, name: str, run_id: str) -> None:
    began = lifecycle.new_run(kit.task(where, name=name), repo, ledger, lifecycle.Options(kit.MACHINE))
    assert (began.run.id, began.run.branch) == (run_id, f"keepfast/{run_id}")


def test_names_that_git_or_the_ledger_have_are_not_taken_again(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    task = kit.task(where, name="softmax")
    kit.git(tmp_path, "branch", "keepfast/softmax-2")
    began = lifecycle.new_run(task, repo, ledger, lifecycle.Options(kit.MACHINE))
    ledger.start(began.run)
    assert lifecycle.new_run(task, repo, ledger, lifecycle.Options(kit.MACHINE)).run.id == "softmax-3"


def test_edits_are_said(where: Path, repo: Repo, ledger: Ledger) -> None:
    (where / "kernel" / "kernel.c").write_text("edited\n")
    began = lifecycle.new_run(kit.task(where), repo, ledger, lifecycle.Options(kit.MACHINE, 3, (("proposer", "deck"),)))
    assert began.edited == ("tasks/soft max é/kernel/kernel.c",)
    assert (began.run.head, began.run.seed, began.run.title) == (repo.head(), 3, "row softmax")
    assert began.run.base != began.run.head


def test_edits_where_root_is_elsewhere_are_taken_too(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("norm.c", "norm.h", "other.txt"):
        (tmp_path / "src" / name).write_text("x\n")
    build = model.Build(readable=("src/*.h",))
    task = kit.task(where, root=str(tmp_path), editable=("src/norm.c",), entry_path="src/norm.c", build=build)
    assert "src/norm.c" in lifecycle.new_run(task, repo, ledger, lifecycle.Options(kit.MACHINE)).edited


def test_an_ignored_kernel_is_refused(where: Path, repo: Repo, ledger: Ledger) -> None:
    with pytest.raises(TaskError, match=r"no file matches editable = \['other/\*\*'\], as git sees it"):
        lifecycle.new_run(kit.task(where, editable=("other/**",)), repo, ledger, lifecycle.Options(kit.MACHINE))


# --------------------------------------------------------------------------------------------- messages


def test_trailers_of_a_keep(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, keep(1.418), titles=("faster\n\nKeepfast-Gain: +900 %\x1b[31m",))
    body = kit.git(tmp_path, "log", "-1", "--format=%B", run.branch)
    assert body.strip().splitlines() == [
        "faster Keepfast-Gain: +900 % [31m",
        "",
        f"Keepfast-Run: {run.id}",
        "Keepfast-Experiment: 2",
        "Keepfast-Gain: +41.8 % [41.1, 42.5], 6 rounds, against the champion",
        "Keepfast-Proposer: scripted",
        f"Keepfast-Ledger: {ledger.head_hash(run.id, 2)}",
    ]


@pytest.mark.parametrize(("text", "line"), [("a\nb\tc", "a b c"), ("x" * 100, "x" * 69 + "..."), ("\x1b]0;evil\x07", "]0;evil"), ("", "")])
def test_one_line(text: str, line: str) -> None:
    assert lifecycle.line(text) == line


# --------------------------------------------------------------------------------------------- finalize


def test_finalize(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, keep(1.5), revert(), keep(1.2))
    before = kit.git(tmp_path, "status", "--porcelain") + kit.git(tmp_path, "rev-parse", "HEAD")
    name = lifecycle.finalize(ledger, repo, run)
    assert name == f"keepfast/{run.id}-final"
    assert show(tmp_path, name) == ["A User|user@example.org|change 2", "A User|user@example.org|change 0", "A User|user@example.org|start"]
    assert kit.git(tmp_path, "log", "-1", "--format=%b", name).strip().splitlines() == [
        "Gain: +20.0 % [19.4, 20.6], 6 rounds, against the champion",
        "Proposed by: scripted, script/2",
        f"Run {run.id}, experiment 4, on a cpu",
    ]
    assert kit.git(tmp_path, "diff", "--stat", name, run.branch) == ""
    assert kit.git(tmp_path, "status", "--porcelain") + kit.git(tmp_path, "rev-parse", "HEAD") == before
    with pytest.raises(UsageError, match=f"branch {name} exists"):
        lifecycle.finalize(ledger, repo, run)
    assert lifecycle.finalize(ledger, repo, run, "another") == "another"


def test_finalize_with_edits_that_were_never_committed(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    (where / "kernel" / "new.h").write_text("mine\n")
    run = done(where, ledger, keep(1.5))
    name = lifecycle.finalize(ledger, repo, run)
    assert show(tmp_path, name, "%s") == ["change 0", "Files of the task that were not committed when the run began", "start"]
    assert "new.h" in kit.git(tmp_path, "show", "--stat", f"{name}^")


def test_finalize_onto_a_newer_base(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    (where / "kernel" / "new.h").write_text("mine\n")
    run = done(where, ledger, keep(1.5))
    kit.git(tmp_path, "add", "-A")  # the user commits what the run began with, and something else
    (tmp_path / "README").write_text("newer\n")
    kit.git(tmp_path, "commit", "-qam", "later")
    name = lifecycle.finalize(ledger, repo, run, base="main")
    assert show(tmp_path, name, "%s") == ["change 0", "later", "start"]
    assert kit.git(tmp_path, "show", f"{name}:README") == "newer\n"


def test_finalize_does_not_undo_what_the_user_did_since(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, keep(1.5))
    (where / "kernel" / "kernel.c").write_text("the user's own better idea\n")
    kit.git(tmp_path, "commit", "-qam", "later")
    with pytest.raises(UsageError, match=r"kernel/kernel.c was changed on .* since the run began"):
        lifecycle.finalize(ledger, repo, run, base="main")
    assert show(tmp_path, lifecycle.finalize(ledger, repo, run), "%s") == ["change 0", "start"]  # without a base: where it began


def test_finalize_needs_a_name(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = done(where, ledger, keep(1.5))
    for key in ("user.name", "user.email"):
        kit.git(tmp_path, "config", "--unset", key)
    for key in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(key, os.devnull)
    for key in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(UsageError, match=r"git config user\.name"):
        lifecycle.finalize(ledger, repo, run)
    assert done(where, ledger, keep(1.5), keep(1.1)).id == run.id  # a run needs no name


def test_nothing_to_finalize(where: Path, repo: Repo, ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="has kept nothing"):
        lifecycle.finalize(ledger, repo, done(where, ledger, revert()))


# --------------------------------------------------------------------------------------------- clearing


def test_clear(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, keep(1.1), SUSPECT, revert())
    made = lifecycle.clear(ledger, repo, run, 3, "the limit in task.toml was wrong")
    assert made is not None
    assert (made.n, made.verdict.reason, made.tree) == (5, model.Reason.CLEARED, ledger.experiment(run.id, 3).tree)
    assert (ledger.champion(run.id) or made).n == 5
    assert show(tmp_path, run.branch, "%s")[0] == "cleared: change 1"
    assert "Keepfast-Gain: +30.0 %" in kit.git(tmp_path, "log", "-1", "--format=%B", run.branch)
    assert lifecycle.clear(ledger, repo, run, 3, "again") is None
    lifecycle.collect(ledger, repo, days=0.0)
    assert kit.git(tmp_path, "rev-parse", f"refs/keepfast/{run.id}/5").strip() == made.commit
    script, verdicts = kit.proposals(*map(kit.kernel, (1, 2, 3, 4))), [keep(1.1), SUSPECT, revert(), revert(), reject()]
    end = loop.run(kit.session(where, ledger, script, RecordedJudge(verdicts)))
    assert ledger.experiment(run.id, 6).parent == end.champion.n == 5  # goes on from it
    assert ledger.broken(run.id) is None


def test_a_signed_reason_names_who_gave_it(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, SUSPECT)
    told = lifecycle.signed(" the limit\nwas wrong ", "Ada <ada@example.org>\x1fsomebody else")
    made = lifecycle.clear(ledger, repo, run, 2, told)
    assert made is not None
    assert made.verdict.detail == "the limit was wrong"
    assert made.title == "cleared by Ada <ada@example.org> somebody else: change 0"
    assert "Keepfast-Gain: +30.0 %" in kit.git(tmp_path, "log", "-1", "--format=%B", run.branch)
    assert lifecycle.signed("  ", "Ada") == ""
    assert lifecycle.signed("why", "") == "why"


@pytest.mark.parametrize(
    ("n", "because", "match"),
    [(2, "x", "experiment 2 is no suspect: keep"), (3, " ", "for a reason"), (9, "x", "no experiment 9")],
)
def test_what_cannot_be_cleared(where: Path, repo: Repo, ledger: Ledger, n: int, because: str, match: str) -> None:
    run = done(where, ledger, keep(1.1), SUSPECT)
    with pytest.raises(UsageError, match=match):
        lifecycle.clear(ledger, repo, run, n, because)
    assert len(ledger.experiments(run.id)) == 3


def test_a_suspect_against_an_old_champion_is_not_cleared(where: Path, repo: Repo, ledger: Ledger) -> None:
    run = done(where, ledger, SUSPECT, keep(1.1))
    with pytest.raises(UsageError, match="judged against experiment 1, and the champion is experiment 3 by now"):
        lifecycle.clear(ledger, repo, run, 2, "x")


# --------------------------------------------------------------------------------------------- tidying up


def test_collect_drops_old_refs_of_what_was_not_kept(where: Path, repo: Repo, ledger: Ledger, tmp_path: Path) -> None:
    run = done(where, ledger, keep(1.1), revert(), reject())
    assert lifecycle.collect(ledger, repo).refs == 0
    assert lifecycle.collect(ledger, repo, days=(time.time() - 1_600_000_000) / 86400).refs == 0  # the fake clock says 2023
    with ledger.hold(run.id):
        assert lifecycle.collect(ledger, repo, days=1.0).refs == 0
    assert lifecycle.collect(ledger, repo, days=1.0).refs == 2
    names = kit.git(tmp_path, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/keepfast").split()
    assert names == ["1", "2"]
