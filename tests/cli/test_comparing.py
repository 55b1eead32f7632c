"""`rembed diff` and warnings of recipes: what is bound is compared, not how files are written."""

import json
import sys
from pathlib import Path

from rembed_keras import config

ROOT = Path(__file__).parents[2]


def done(command, tmp_path, *words):
    code, out, err = command("diff", *words, cwd=tmp_path)
    assert code == 0, err
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    return out


def test_recipes_differ_by_what_they_bind(command, tmp_path):
    recipe = tmp_path / "same.gin"
    recipe.write_text(
        'from __gin__ import dynamic_registration\ninclude "recipes/options/embeddings/coupled.gin"\n'
        'from rembed_keras import modeling\nWORKDIR = "elsewhere"\nHEADS = 2\nmodeling.Encoder.num_heads = %HEADS\n'
        "modeling.Encoder.num_segments = 2\n"  # the default
    )
    out = done(command, tmp_path, "recipes/options/embeddings/coupled.gin", "same.gin")
    assert "They bind the same." in out and "Their ledgers agree." in out
    out = done(command, tmp_path, "recipes/options/embeddings/decoupled.gin", "same.gin")
    rows = [line.split() for line in out.splitlines()]
    assert ["COUPLING", "'decoupled'", "'coupled'"] in rows and ["OUTPUT_EMBEDDING_DIM", "256", "64"] in rows
    one, other = (
        config.ledger_of(config.load(each)) for each in ("recipes/options/embeddings/decoupled.gin", str(recipe))
    )
    assert ["dropped", f"{one.dropped:,}", f"{other.dropped:,}"] in rows
    assert not any("num_heads" in line or "STEPS" in line for line in out.splitlines())
    out = done(command, tmp_path, "recipes/quickstart.gin", "same.gin")
    assert "\n  A: [@training.prepare, @training.pretrain," in out  # a long value is broken between words


def test_defaults_stand_where_something_is_called_with_them():
    """The quickstart has AdamW in fine-tuning alone, which gives it a learning rate and has a beta_2 of its own."""
    found = config.differences(*map(config.load, ("recipes/quickstart.gin", "recipes/options/growing_rows.gin")))
    said = {each.name: (each.one, each.other) for each in found}
    assert said["training.AdamW.learning_rate"] == ("-", "@training.WarmupLinearDecay()")
    assert said["training.AdamW.beta_2"] == ("-", "0.98")
    assert said["modeling.Encoder.num_segments"] == ("0", "2")  # a default
    assert said["finetune/training.AdamW.beta_2"] == ("0.999", "-")


def test_one_name_of_two_modules_is_a_difference(command, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("parts_one", "parts_two"):
        (tmp_path / f"{name}.py").write_text(
            "from rembed_keras.modeling.attention import Global\n\n\nclass Own(Global):\n    pass\n"
        )
        (tmp_path / f"{name}.gin").write_text(
            'from __gin__ import dynamic_registration\ninclude "recipes/options/embeddings/coupled.gin"\n'
            f"from rembed_keras import modeling\nimport {name} as parts\nmodeling.Encoder.attention = @parts.Own()\n"
        )
    trust = ("--allow-import", "parts_one", "--allow-import", "parts_two")
    out = done(command, tmp_path, "parts_one.gin", "parts_two.gin", *trust)
    (row,) = [line.split() for line in out.splitlines() if "attention" in line]
    assert row == ["modeling.Encoder.attention", "@parts_one.Own()", "@parts_two.Own()"]


def test_parts_that_only_one_has_stand_among_the_others(command, tmp_path):
    out = done(command, tmp_path, "recipes/quickstart.gin", "recipes/reallocate/coupled_encoder.gin")
    lines = out.split("Parameters that differ")[1].splitlines()
    first = [line.split("  ")[0].strip() for line in lines]
    order = [first.index(name) for name in ("projection", "4 blocks", "2 blocks", "last norm", "pooler", "total")]
    assert order == sorted(order) and first[order[-1] + 1 :] == [""]


def test_runs_have_their_scores_side_by_side(command, tmp_path):
    recipe = config.load("recipes/options/embeddings/coupled.gin")
    for name, loss, value in (("one", 3.25, 0.5), ("two", 3.5, 0.25)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.gin").write_text(recipe.text())
        (tmp_path / name / "ledger.json").write_text(json.dumps(config.ledger_of(recipe).to_json()))
        row = {"stage": "pretrain", "run": "pretrain", "step": 9, "loss": loss}
        skipped = row | {"step": 10, "loss": None}  # whose steps were all skipped
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(skipped) + "\n")
        scores = [
            {
                "task": "t",
                "language": language,
                "metric": "accuracy",
                "value": value,
                "seed": 0,
                "n": 4,
                "system": "pretrained",
            }
            for language in ("de", "en")
        ]
        (tmp_path / name / "scores.json").write_text(json.dumps([score | {"system": "pretrained"} for score in scores]))
    rows = [line.split() for line in done(command, tmp_path, "one", "two").splitlines()]
    assert ["pretrain", "loss", "all", "step", "9", "3.250", "3.500"] in rows
    assert ["t", "accuracy", "mean", "of", "2", "pretrained", "50.0", "25.0"] in rows
    (tmp_path / "two/SMOKE.txt").touch()
    about = done(command, tmp_path, "one", "two").splitlines()
    assert about[:3] == ["A is the run one", "B is the run two", "B is a smoke run: nothing in it means anything"]
    assert "Their scores are the same:" in done(command, tmp_path, "one", "one")
    failed = [score | {"value": None, "task": "u"} for score in json.loads((tmp_path / "two/scores.json").read_text())]
    (tmp_path / "two/scores.json").write_text(json.dumps(failed))
    rows = [line.split() for line in done(command, tmp_path, "one", "two").splitlines()]
    assert ["u", "accuracy", "mean", "of", "2", "pretrained", "-", "failed"] in rows
    for file, damaged in (("ledger.json", '{"parts": [1]}'), ("metrics.jsonl", '{"run": 1, "loss": 1.0}\n[]\n')):
        whole = (tmp_path / "two" / file).read_text()
        (tmp_path / "two" / file).write_text(damaged)
        code, _, err = command("diff", "one", "two", cwd=tmp_path)
        assert code == 2 and f"two/{file} " in err and err.count("\n") == 1
        (tmp_path / "two" / file).write_text(whole)
    assert command("diff", "one", tmp_path, cwd=tmp_path)[0] == 2
    assert "it has no config.gin" in command("diff", "one", tmp_path, cwd=tmp_path)[2]


def test_a_warm_up_as_long_as_the_run_is_a_warning(command, tmp_path):
    (tmp_path / "recipe.gin").write_text('include "recipes/options/embeddings/coupled.gin"\nSTEPS = 200\n')
    code, _, err = command("inspect", "recipe.gin", "--json", cwd=tmp_path)
    warned = [line for line in err.splitlines() if line.startswith("warning: WARMUP_STEPS is 200 (")]
    assert code == 0 and warned[0].endswith(") and the run has 200 steps: the learning rate only rises")
    assert not command("inspect", "recipe.gin", "--json", "STEPS=201", cwd=tmp_path)[2]
    longer = config.load(
        "recipes/quickstart.gin", ["training.WarmupLinearDecay.total_steps=100000", "WARMUP_STEPS=9000"]
    )
    assert "and the run has 1,350 steps: the learning rate only rises" in config.cautions(longer)[0]
    assert config.cautions(config.load("recipes/optimizers/schedule_free.gin", ["STEPS=100"]))  # which has no schedule
    own = "finetune/keras.optimizers.ScheduleFreeAdamW"
    tuned = [f"training.finetune.optimizer=@{own}", f"{own}.warmup_steps=2000"]  # of steps that are not counted here
    assert not config.cautions(config.load("recipes/quickstart.gin", tuned))


def test_steps_at_a_learning_rate_of_0_are_a_warning():
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = ["STEPS=900", stages, "more/training.pretrain.steps=1000"]
    (warned,) = config.cautions(config.load("recipes/quickstart.gin", bindings))
    said = "STEPS is 900 (command line) and @more/training.pretrain ends at step 1,000: its learning rate is 0 from"
    assert warned.startswith(said)
    further = [*bindings, "more/training.WarmupLinearDecay.total_steps=1000"]
    assert not config.cautions(config.load("recipes/quickstart.gin", further))
    slow = [*further, "more/training.WarmupLinearDecay.warmup_steps=950"]  # which ends before its own last step
    assert not config.cautions(config.load("recipes/quickstart.gin", slow))


def test_checkpoints_to_keep_of_steps_at_which_none_is_written_are_a_warning():
    assert not config.cautions(config.load("recipes/overnight.gin", ["CHECKPOINT_EVERY=500"]))
    (warned,) = config.cautions(config.load("recipes/overnight.gin", ["CHECKPOINT_EVERY=700"]))
    assert warned.startswith("training.pretrain.keep_checkpoint_every is 500 (")
    assert warned.endswith(") and one is written every 700 steps: only those of multiples of 3,500 stay")


def test_scores_that_a_later_stage_replaces_are_a_warning():
    twice = "@training.pretrain, @training.retrieve, @a/training.pretrain, @training.retrieve"
    ends = ["STEPS=900", "a/training.pretrain.steps=1350", "training.WarmupLinearDecay.total_steps=1350"]
    starts = ["a/training.retrieve.pretrained='rembed_small'"]
    said = {
        "": (twice, ends),
        "a/": ("@training.retrieve, @a/training.retrieve", starts),
        "of one encoder": ("@training.pretrain, @training.retrieve, @a/training.retrieve", []),
    }
    for scope, (stages, bindings) in said.items():
        recipe = config.load("recipes/quickstart.gin", [f"training.run.stages=[{stages}]", *bindings])
        warned = [line.partition(":")[0] for line in config.cautions(recipe)]
        told = f"@training.retrieve and, later, @{scope}training.retrieve score the same texts"
        assert warned == [told] * (scope != "of one encoder")


def test_inspect_shows_texts_in_their_own_letters(command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = command("inspect", "recipes/overnight.gin", "TEXT_DIR=тексты/тест", cwd=tmp_path)[1]
    assert out.count("тексты/тест") == 2  # in the table of knobs and in the recipe


def test_recipes_that_pre_train_nothing_have_no_ledgers_that_agree(command, tmp_path):
    out = command("diff", *(f"recipes/finetune/methods/{name}.gin" for name in ("lora", "road")), cwd=tmp_path)[1]
    assert "Neither has a ledger." in out and "agree" not in out
