import json
import os
import re
import resource
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from rembed_keras import cli
from rembed_keras.analysis import ledger
from rembed_keras.analysis.cost import solver
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks import Bottleneck, PostNorm, PreNorm

ROOT = Path(__file__).parents[3]


def test_the_published_model_is_found_at_its_own_budget():
    best = solver.solve(575_920_384, 250_300, total=994_591_804, input_widths=[256])[0]
    encoder = best.model["encoder"]
    assert [encoder[key] for key in ("num_layers", "hidden_dim", "num_heads")] == [32, 1152, 18]
    assert best.model["output_embedding_dim"] == 1664
    assert best.ledger.total == 994_591_804


def test_budgets_and_spans_are_kept_to_and_nothing_more_would_fit():
    kept, total = 278_000_000, 559_000_000
    found = solver.solve(kept, 250_002, total, aspect=(25, 60))
    assert len(found) > 10
    for one in found:
        encoder = one.model["encoder"]
        assert one.ledger.kept <= kept and one.ledger.total <= total and 25 <= one.aspect <= 60
        deeper = ledger(one.model | {"encoder": encoder | {"num_layers": encoder["num_layers"] + 1}})
        assert deeper.kept > kept or encoder["hidden_dim"] / (encoder["num_layers"] + 1) < 25
        wider = ledger(one.model | {"output_embedding_dim": one.model["output_embedding_dim"] + 64})
        assert wider.total > total or one.model["output_embedding_dim"] == 4096
    assert [one.penalty for one in found] == sorted(one.penalty for one in found)


def test_no_proposal_has_all_of_another_and_more():
    for one, other in combinations(solver.solve(100_000_000, 120_000), 2):
        sizes = [
            np.array([each.model["encoder"][key] for key in ("num_layers", "hidden_dim", "input_embedding_dim")])
            for each in (one, other)
        ]
        assert (sizes[0] > sizes[1]).any() and (sizes[1] > sizes[0]).any()


@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_a_latency_is_a_bound_on_flops(block):
    rate = 5e10
    found = solver.solve(
        278_000_000, 250_002, max_latency=1000, flops_per_second=rate, sequence_length=128, block=block
    )
    for one in found:
        flops = ledger(one.model, 128).flops["kept"] * 128
        assert one.latency == pytest.approx(flops / rate * 1e3) and one.latency <= 1000
    freely = solver.solve(278_000_000, 250_002, sequence_length=128, block=block)
    assert max(one.ledger.flops["kept"] for one in freely) > max(one.ledger.flops["kept"] for one in found)


def test_a_stack_leaves_room_for_an_output_table():
    total = 66_000_000
    found = solver.solve(60_000_000, 500_000, total, [64], (2.0, 60.0))
    for one in found:
        encoder = one.model["encoder"]
        assert one.ledger.total <= total and one.model["output_embedding_dim"] >= 64
        more = {"encoder": encoder | {"num_layers": encoder["num_layers"] + 1}, "output_embedding_dim": 64}
        assert ledger(more).total > total or encoder["hidden_dim"] / more["encoder"]["num_layers"] < 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kept": 3_000_000}, "nothing fits in 3,000,000 parameters with 250,002 words: the least is 16,141,440"),
        ({"kept": 278_000_000, "total": 10_000_000}, "raise --total from 10,000,000 to 32,395,858"),
        ({"kept": 278_000_000, "max_latency": 1, "flops_per_second": 1e9}, "raise --max-latency"),
        ({"kept": 278_000_000, "aspect": (30.0, 30.001), "input_widths": [64]}, "371,311,872, 32 layers of width 960"),
        ({"kept": 278_000_000, "aspect": (9000.0, 9001.0)}, "no depth and width have an aspect of 9000..9001"),
        ({"kept": 10**11, "aspect": (0.1, 0.2)}, "no depth and width have an aspect of 0.1..0.2"),
    ],
)
def test_what_cannot_be_reached_is_reported_with_the_nearest_that_can(arguments, message):
    with pytest.raises(UserError, match=message):
        solver.solve(vocabulary_size=250_002, **arguments)


def test_the_nearest_budget_that_is_named_is_enough_and_one_less_is_not():
    assert solver.solve(16_141_440, 250_002, total=10**9)
    with pytest.raises(UserError, match="16,141,440"):
        solver.solve(16_141_439, 250_002, total=10**9)
    assert solver.solve(278_000_000, 250_002, total=32_395_858)
    with pytest.raises(UserError, match="32,395,858"):
        solver.solve(278_000_000, 250_002, total=32_395_857)


def test_the_latency_that_is_named_is_enough():
    asked = {"kept": 20_000_000, "vocabulary_size": 30_000, "flops_per_second": 1e11}
    with pytest.raises(UserError) as refused:
        solver.solve(**asked, max_latency=0.001)
    times = float(str(refused.value).split("--max-latency ")[1].split(" times")[0])
    assert solver.solve(**asked, max_latency=0.001 * times)
    with pytest.raises(UserError):
        solver.solve(**asked, max_latency=0.001 * (times - 0.1))


ASKED = {
    "2B": (2_000_000_000, 250_300, None, solver.INPUT_WIDTHS, (25.0, 60.0), 200_000, 1e10),
    "278M": (278_000_000, 250_002),
}


def run(arguments, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rembed", *map(str, arguments)])
    cli.main()
    return capsys.readouterr().out


@pytest.mark.parametrize("block", [PostNorm, PreNorm, Bottleneck])
def test_inspect_confirms_what_solve_writes(block, tmp_path, capsys, monkeypatch):
    out = tmp_path / "model.gin"
    command = [
        "solve",
        "--kept",
        "278M",
        "--vocabulary",
        "250002",
        "--block",
        block.__name__,
        "--e-in",
        "128,256",
        "--out",
        out,
    ]
    assert "Allocations, the best first" in run(command, capsys, monkeypatch)
    best = solver.solve(278_000_000, 250_002, input_widths=[128, 256], block=block)[0]
    seen = json.loads(run(["inspect", out, "--json"], capsys, monkeypatch))["ledger"]
    assert (seen["kept"], seen["total"]) == (best.ledger.kept, best.ledger.total)
    assert f"# {best.ledger.kept:,} parameters kept" in out.read_text()
    with pytest.raises(SystemExit) as exit_:
        run(command, capsys, monkeypatch)
    assert exit_.value.code == 2 and "already exists" in capsys.readouterr().err


@pytest.mark.parametrize("length", [128, 1024])
def test_the_recipe_trains_on_rows_of_the_longest_text(length, tmp_path, capsys, monkeypatch):
    out = tmp_path / "model.gin"
    sizes = ["--kept", "20M", "--vocabulary", "8000", "--sequence-length", str(length), "--e-in", "128"]
    run(["solve", *sizes, "--out", out], capsys, monkeypatch)
    seen = json.loads(run(["inspect", out, "--json"], capsys, monkeypatch))
    assert seen["knobs"]["SEQUENCE_LENGTH"]["value"] == seen["ledger"]["sequence_length"] == length


def test_a_width_that_is_named_twice_is_proposed_once(capsys, monkeypatch):
    once, twice = (
        run(["solve", "--kept", "278M", "--vocabulary", "250002", "--e-in", widths], capsys, monkeypatch)
        for widths in ("128,256", "128,256,128")
    )
    assert once == twice


def test_a_recipe_that_a_full_disk_cuts_is_not_there(tmp_path):
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # as on a disk that is full

    command = [sys.executable, "-m", "rembed_keras", "solve", "--kept", "50M", "--vocabulary", "9k", "--out", "a.gin"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, preexec_fn=small, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "rembed: a.gin cannot be written: File too large\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("columns", "arguments"),
    [
        (80, ["--kept", "2B", "--vocabulary", "250300", "--max-latency", "200000"]),
        (40, ["--kept", "278M", "--vocabulary", "250002"]),
        (10, ["--kept", "278M", "--vocabulary", "250002"]),
    ],
)
def test_no_terminal_is_too_narrow_for_all_digits(columns, arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(solver, "matmul_rate", lambda: 1e10)
    shown = run(["solve", *arguments, "--show", "1"], capsys, monkeypatch)
    best = solver.solve(*ASKED[arguments[1]])[0]
    assert "\u2026" not in shown and max(map(len, shown.splitlines())) <= columns
    for word in ("L", "in", "all", "FLOPs", f"{best.ledger.kept / 1e6:,.1f}M", f"{best.ledger.total / 1e6:,.1f}M"):
        assert re.search(rf"(?<![\w.,]){re.escape(word)}(?![\w,])", shown), shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kept", "278Q"], "'278Q' is not a number such as 250000 or 278M"),
        (["--kept", "1M", "--aspect", "60..25"], "'60..25' is not a range such as 25..60"),
        (["--kept", "1M", "--e-in", "a"], "--e-in is 'a'; it must be widths such as 128,256"),
        (["--kept", "1M", "--e-in", ""], "Invalid value for '--e-in': it is empty"),
        (["--kept", "3M"], "the least is 16,141,440"),
    ],
)
def test_mistakes_cost_one_line(arguments, message, capsys, monkeypatch):
    with pytest.raises(SystemExit) as exit_:
        run(["solve", "--vocabulary", "250002", *arguments], capsys, monkeypatch)
    err = capsys.readouterr().err
    assert exit_.value.code == 2 and message in err and err.count("\n") == 1


def test_solving_and_inspecting_load_no_framework():
    code = (
        "import sys; from rembed_keras import cli;"
        "sys.argv = ['rembed', 'solve', '--kept', '50M', '--vocabulary', '9k']; cli.main();"
        " print([m for m in ('tensorflow', 'keras', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_the_rate_is_that_of_a_product():
    assert 1e8 < solver.matmul_rate(256, 2) < 1e14
