"""The sections of the long version; each injects many faults and returns its results."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from tests.faults import commands as mutated
from tests.faults import damage, hostile_corpus, hostile_data
from tests.faults import disk as disks
from tests.faults import hostile as hostile_models
from tests.faults import kills as killing
from tests.faults import ranks as launched
from tests.faults.process import zoo_command
from tests.faults.runs import KINDS, write_data

Figures = dict[str, Any]


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (a command)


def counted(name: str, found: Iterable[tuple[Any, ...]]) -> Figures:
    """Count the attempts and those that were detected, which the last value of each tells."""
    rows = list(found)
    missed = [" ".join(str(getattr(each, "name", each)) for each in what) for *what, detected in rows if not detected]
    say(f"{name}: {len(rows) - len(missed)} of {len(rows)}; missed: {missed}")
    return {"tried": len(rows), "noticed": len(rows) - len(missed), "missed": missed}


def flips(folder: Path) -> Figures:
    """Damage the files of a run."""
    damage.make_runs(folder)
    run, other = folder / "one", folder / "other"
    return {
        "a bit flips": counted("bits", damage.damaged(run, damage.flip, 1000)),
        "a bit of an unfinished run flips": counted("unfinished", damage.resumed_flips(folder / "part", 60)),
        "a file is truncated": counted("cuts", damage.damaged(run, damage.truncate, 200)),
        "a block is zeroed": counted("zeros", damage.damaged(run, damage.zero, 200)),
        "a file of a model folder is another's, or its manifest is stale": counted("swaps", damage.swapped(run, other)),
    }


def hostile(folder: Path) -> Figures:
    """Read the whole corpus of hostile data and configurations, and then that of model folders."""
    models, sound = folder / "models", folder / "sound"
    for kind in hostile_models.KINDS:
        hostile_models.write_sound(sound / kind, kind)
    cases = {name: partial(hostile_corpus.offer, name, sound) for name in hostile_corpus.CORPUS}
    for place in (folder / "data", models):
        place.mkdir()
    found = _refusals(folder / "data", hostile_data.CORPUS)
    return found | {"models": _refusals(models, cases, hostile_corpus.HARMLESS)}


def _refusals(folder: Path, cases: Mapping[str, Callable[[Path], list[str]]], harmless: Collection[str] = ()) -> Figures:
    """Run the command of each case in a new folder; memory is counted beyond that of a simple command."""
    base = zoo_command(["list"], folder).memory
    refused, fine, wrong, seconds, memory, ran = 0, 0, list[str](), dict[str, float](), dict[str, int](), 0
    for name, case in cases.items():
        place = folder / str(len(seconds))
        place.mkdir()
        words = case(place)
        size = sum(512 * path.lstat().st_blocks for path in place.rglob("*"))
        ended = zoo_command(words, place, timeout=300, env={"XDG_CACHE_HOME": str(place / "cache")})
        refused += ended.refused
        fine += name in harmless and ended.code == 0
        ran += (place / "ran").exists()
        seconds[name], memory[name] = round(ended.seconds, 2), ended.memory - base - 2 * size
        if not ended.refused and (name not in harmless or ended.code):
            wrong.append(f"{name}: exit code {ended.code}")
        say(f"hostile: {name}: {'refused' if ended.refused else ended.err}, {ended.seconds:.1f} s, {ended.memory >> 20} MiB")
    slow, large = max(seconds, key=lambda name: seconds[name]), max(memory, key=lambda name: memory[name])
    return {
        "tried": len(seconds), "refused": refused, "harmless": fine, "executed": ran, "wrong": wrong,
        "slowest": [slow, seconds[slow]], "largest": [large, memory[large]],
        "within_a_second": sum(value <= 1 for value in seconds.values()),
    }  # fmt: skip


def commands(folder: Path, wanted: int = 200) -> Figures:
    """Try mutations until `wanted` of them are not valid by chance."""
    mutated.prepare(folder)
    refused, valid, wrong = 0, 0, list[str]()
    for words, text in mutated.mutations(1):
        ended = mutated.attempt(folder, words, text)
        if ended.refused:
            refused += 1
        elif ended.code == 0:
            valid += 1
        else:
            wrong.append(f"{ascii(' '.join(words))[:300]}: exit code {ended.code}: {ended.err[-200:]}")
            say(f"commands: {wrong[-1]}")
        if refused + len(wrong) == wanted:
            break
    say(f"commands: {refused} of {wanted} refused, {valid} valid by chance")
    return {"tried": wanted, "refused": refused, "valid": valid, "wrong": wrong}


def ranks(folder: Path, timeout: int = 15) -> Figures:
    """Lose each rank in every way, during training and before the process group exists."""
    rows = list[Figures]()
    starts = [("none", "step"), *product(("lightning", "torchrun"), ("start", "step"))]
    for (launcher, when), how, rank in product(starts, ("kill", "raise", "hang", "terminate"), (0, 1)):
        ending, wrong = launched.lose_and_resume(folder, rank, how, when, timeout, launcher)
        limit = timeout + launched.GRACE + (launched.AGENT if (launcher, how) == ("torchrun", "hang") else 0)
        in_time = ending.seconds is not None and ending.seconds <= limit
        fine = in_time and 0 not in ending.codes and not (ending.orphans or ending.model or wrong)
        seconds = ending.seconds and round(ending.seconds, 1)
        row = {"launcher": launcher, "when": when, "how": how, "rank": rank, "codes": ending.codes, "seconds": seconds}
        rows.append(row | {"resumed": wrong or "equal", "fine": fine})
        say(f"ranks: {rows[-1]} {'' if fine else ending.output[-500:]}")
    return {"timeout": timeout, "rows": rows}


def disk(folder: Path) -> Figures:
    """Run all checks of disks and folders."""
    write_data(folder)
    found = {}
    for name, check in disks.checks(folder).items():
        problems = list(check())
        found[name] = {"tried": len(problems), "wrong": [problem for problem in problems if problem]}
        say(f"disk: {name}: {found[name]}")
    return found


def kills(folder: Path, count: int = 200) -> Figures:
    """Kill and resume runs of all kinds, two at a time."""
    write_data(folder)
    cases = [killing.Case(kind, workers, ranks) for ranks in (1, 2) for workers in (0, 2) for kind in KINDS]
    shares = [count // len(cases) + (i < count % len(cases)) for i in range(len(cases))]
    with ThreadPoolExecutor(2) as pool:
        found = [killed for rows in pool.map(_killed, cases, shares, [folder] * len(cases)) for killed in rows]
    stages = sorted({killed.stage for killed in found})
    return {
        "tried": len(found),
        "equal": sum(not killed.wrong for killed in found),
        "stages": {stage: sum(killed.stage == stage for killed in found) for stage in stages},
        "cases": {case.name: [sum(not k.wrong for k in found if k.case == case), share]
                  for case, share in zip(cases, shares, strict=True)},
        "wrong": [f"{killed.case.name}, {killed.point}, {killed.stage}: {killed.wrong}" for killed in found if killed.wrong],
    }  # fmt: skip


def lottery(folder: Path, count: int = 50) -> Figures:
    """Kill and resume lottery experiments."""
    found = _killed(killing.Rounds("images"), count, folder)
    return {"tried": len(found), "equal": sum(not killed.wrong for killed in found),
            "stages": dict(sorted(Counter(killed.stage.partition(",")[0] for killed in found).items())),
            "wrong": [f"{killed.point}, {killed.stage}: {killed.wrong}" for killed in found if killed.wrong]}  # fmt: skip


def _killed(case: killing.Case, count: int, folder: Path) -> list[killing.Killed]:
    draw, whole, found = random.Random(case.name), killing.undisturbed(case, folder), list[killing.Killed]()
    for _ in range(count):
        killed = killing.kill_and_resume(case, whole, folder, draw, f"run-{case.name}")
        say(f"kills: {case.name}, {killed.point}, {killed.stage}: {killed.wrong or 'equal'}")
        found.append(killed)
    return found


SECTIONS: dict[str, Callable[[Path], Figures]] = {
    section.__name__: section for section in (flips, hostile, commands, ranks, disk, kills, lottery)
}
