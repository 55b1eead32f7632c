"""Which of a task's fine-tuned models answers: of the lowest seed, at the learning rate that was chosen."""

import json

import pytest

from rembed_keras.errors import UserError
from rembed_keras.training.initial.finetuned import chosen_model
from rembed_keras.training.loop import checkpoints


def folder_of_seeds(tmp_path, names, chosen):
    for name in names:
        (tmp_path / name).mkdir()
    if chosen is not None:
        (tmp_path / "chosen.json").write_text(json.dumps(chosen))
    return tmp_path


SEEDS = ["pretrained-lr0.001-seed10", "pretrained-lr0.001-seed2", "pretrained-lr1e-05-seed1", "scratch-lr0.001-seed0"]


@pytest.mark.parametrize(
    ("names", "chosen", "taken"),
    [
        (SEEDS, {"pretrained": 0.001}, "pretrained-lr0.001-seed2"),
        (SEEDS, {"pretrained": 1e-5}, "pretrained-lr1e-05-seed1"),
        (SEEDS[:2], None, "pretrained-lr0.001-seed2"),
        (SEEDS[3:], {"scratch": 0.001}, "scratch-lr0.001-seed0"),
        (SEEDS, {"pretrained": 0.1}, None),  # not the one that started from nothing
        (SEEDS, {"scratch": 0.001}, "learning rates 1e-05, 0.001: run evaluate"),
        (["notes", "pretrained-lrx-seed0"], None, None),
    ],
)
def test_the_model_of_the_lowest_seed_answers(names, chosen, taken, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "latest", lambda folder: checkpoints.Checkpoint(folder, 1, {}))
    folder = folder_of_seeds(tmp_path, names, chosen)
    if taken in names:
        assert chosen_model(folder).path.name == taken
        return
    with pytest.raises(UserError, match=taken or "has no model that was trained to its end"):
        chosen_model(folder)


@pytest.mark.parametrize(
    ("failed", "taken"),
    [
        (SEEDS[1:2], SEEDS[0]),
        (SEEDS[:2], "has no model but those whose training failed: lower the learning rate"),
        (SEEDS[2:], SEEDS[1]),
    ],
)
def test_no_model_whose_training_failed_answers(failed, taken, tmp_path, monkeypatch):
    """It may have a checkpoint of before, for it may have been stopped on its way."""
    monkeypatch.setattr(checkpoints, "latest", lambda folder: checkpoints.Checkpoint(folder, 1, {}))
    folder = folder_of_seeds(tmp_path, SEEDS, {"pretrained": 0.001})
    for name in failed:
        (folder / name / "failed.json").write_text("{}")
    if taken in SEEDS:
        assert chosen_model(folder).path.name == taken
        return
    with pytest.raises(UserError, match=taken):
        chosen_model(folder)
