"""The page of all recipes: what each says of itself, what it costs by its ledger, and what it scored.

Costs are counted by the same code as `rembed inspect --json`. Scores are what headers say after "Scored:", and for a
study what its `study.json` in docs/results says; nothing is taken from elsewhere, so most recipes are not scored.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from rembed_keras import config
from rembed_keras.analysis.cost.ledger import Ledger

ROOT = Path(__file__).parents[2]
INTRODUCTION = """\
# Recipes

A recipe is a gin file, see [Recipes](guides/recipes.md). Beside what each says of itself stands what it costs by the
[ledger](parameters.md#the-ledger): parameters that are kept and that are dropped after pre-training, and FLOPs per
token, of the forward pass of what is kept and of a training step of all. A study has those of its arms, from the
smallest to the largest. A recipe that pre-trains nothing has those of the encoder that its command names; what
fine-tuning trains of it, the run prints. *Not scored* means that the repository has no score that was measured.
"""
SCORED = re.compile(r" ?(Scored|The paper's scores?(?:, [^:]*)?): ([^`]*?)\.(?=$| [A-Z]|\n)")
NAMED = re.compile(r"\bdocs/([\w/]+\.md)\b")
GIVEN = re.compile(r"(?:PRETRAINED|INITIAL)=(\S+)")
NONE = "not scored"


def catalogue() -> str:
    """The page, as Markdown."""
    parts = [INTRODUCTION]
    for folder in sorted({path.parent for path in (ROOT / "recipes").rglob("*.gin")}):
        parts.append(f"\n## {folder.relative_to(ROOT).as_posix()}\n")
        parts += [entry(path) for path in sorted(folder.glob("*.gin"))]
    return "".join(parts)


def entry(recipe: Path) -> str:
    """What the page says of a recipe."""
    name = recipe.relative_to(ROOT).as_posix()
    described, score = header(recipe)
    with TemporaryDirectory() as empty, contextlib.chdir(empty):  # a run that is here is not what others have
        if config.is_study(name):
            commands = [run.command for run in config.plan_study(name, ["SEEDS=(0,)"]).runs]  # one an arm
            ledgers = [config.ledger_of(config.load(path, bindings)) for _, path, *bindings in commands]
            counted, score = f"{len(ledgers)} arms · {costs(ledgers)}", _found(recipe.stem)
        else:
            ledger = config.ledger_of(config.load(name))
            counted = costs([ledger]) if ledger else _given(described)
    return f"\n**[{recipe.stem}](../{name})** · {counted} · {score}\n\n{described}\n"


def header(recipe: Path) -> tuple[str, str]:
    """What a recipe says of itself, with its commands in blocks, and its score."""
    lines = recipe.read_text(encoding="utf-8").splitlines()
    lines = lines[: next(index for index, line in enumerate(lines) if not line.startswith("#"))]
    parts = []
    for is_command, group in groupby(lines, lambda line: line.startswith("#   ")):
        said = [line[1:].strip() for line in group]
        parts.append("\n".join(["```", *said, "```"]) if is_command else NAMED.sub(r"[docs/\1](\1)", " ".join(said)))
    described = "\n\n".join(parts)
    scores = [f"{by[0].lower()}{by[1:]}: {words}" for by, words in SCORED.findall(described)]
    return SCORED.sub("", described), "; ".join(scores) or NONE


def costs(ledgers: Sequence[Ledger]) -> str:
    """Parameters kept and dropped, and FLOPs, from the least to the most of several ledgers."""
    kept, dropped = (_range([getattr(each, field) for each in ledgers], "{:,}".format) for field in ("kept", "dropped"))
    forward, training = [each.flops["kept"] for each in ledgers], [each.training_flops["total"] for each in ledgers]
    flops = f"FLOPs per token: {_range(forward, _short)} forward, {_range(training, _short)} training"
    return f"{kept} kept, {dropped} dropped · {flops}"


def _given(described: str) -> str:
    """What is known of the costs of an encoder that is given."""
    found = GIVEN.search(described)
    return _of_run(found[1]) if found else "costs those of what is given"


@cache
def _of_run(name: str) -> str:
    """The costs of the encoder of a run, by the recipe that makes it, if that is ours."""
    recipe = ROOT / f"recipes/{Path(name).name}.gin"
    ledger = config.ledger_of(config.load(str(recipe))) if name.startswith("runs/") and recipe.exists() else None
    if ledger is None:
        return f"costs those of `{name}`"
    return f"of `{name}` {ledger.kept:,} kept · FLOPs per token: {_short(ledger.flops['kept'])} forward"


def _range(counts: Sequence[int], said: Callable[[int], str]) -> str:
    return " to ".join(said(count) for count in sorted({min(counts), max(counts)}))


def _short(count: int) -> str:
    """A count in three digits, as in 1.13M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.{max(0, 3 - len(str(int(count / size))))}f}{letter}"
    return str(count)


def _found(name: str) -> str:
    """What a study found, with a link to its verdicts."""
    path = ROOT / f"docs/results/{name}/study.json"
    if not path.exists():
        return NONE
    record = json.loads(path.read_text(encoding="utf-8"))
    finished = sum(run["state"] == "finished" for run in record["runs"])
    verdicts = Counter(verdict["verdict"] for verdict in record["verdicts"])
    said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    anchor = name.replace("_", "-")
    return f"{finished} of {len(record['runs'])} runs; [claims](results/README.md#{anchor}): {said}"
