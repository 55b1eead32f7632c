"""Starting weights are found from where a checkpoint is, whatever parts of its run are links, or were moved with it."""

import pytest

from rembed_keras.data.moved import note_of
from rembed_keras.errors import UserError
from rembed_keras.training.loop import starting

PLACE = "checkpoints/step-00000007"


@pytest.mark.parametrize("part", ["finetuned", "finetuned/topics", "checkpoints"])
def test_starting_weights_of_a_run_are_found_where_a_part_of_it_is_a_link(part, tmp_path):
    run = tmp_path / "run"
    for folder in (PLACE, "finetuned/topics/one"):
        (run / folder).mkdir(parents=True)
    (run / part).rename(tmp_path / "disk")
    (run / part).symlink_to(tmp_path / "disk")
    found = starting.folder_of({"place": PLACE}, run / "finetuned/topics/one")
    assert found.samefile(run / PLACE)


def test_starting_weights_of_a_link_to_a_model_are_those_of_its_run(tmp_path):
    for folder in (PLACE, "finetuned/topics/one"):
        (tmp_path / "run" / folder).mkdir(parents=True)
    (tmp_path / "model").symlink_to(tmp_path / "run/finetuned/topics/one")
    assert starting.folder_of({"place": PLACE}, tmp_path / "model").samefile(tmp_path / "run" / PLACE)


def test_starting_weights_of_another_run_are_found_where_both_were_moved(tmp_path):
    first, model = f"first/{PLACE}", "second/finetuned/topics/one"
    for folder in (first, model):
        (tmp_path / "old" / folder).mkdir(parents=True)
    start = note_of(tmp_path / "old" / first, tmp_path / "old/second")
    assert starting.folder_of(start, tmp_path / "old" / model).samefile(tmp_path / "old" / first)
    (tmp_path / "old").rename(tmp_path / "new")
    assert starting.folder_of(start, tmp_path / "new" / model).samefile(tmp_path / "new" / first)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "new/second").rename(tmp_path / "elsewhere/second")
    with pytest.raises(UserError, match=f"its starting weights, {tmp_path}/old/{first}, are gone"):
        starting.folder_of(start, tmp_path / "elsewhere" / model)
    (tmp_path / "new").rename(tmp_path / "old")
    assert starting.folder_of(start, tmp_path / "elsewhere" / model).samefile(tmp_path / "old" / first)
