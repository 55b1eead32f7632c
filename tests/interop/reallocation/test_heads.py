"""Heads that a reallocated model cannot have as they are."""

import keras
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interop import Plan, read_model, reallocate
from rembed_keras.modeling import MaskedLM
from tests.interop.models import random_model


@keras.saving.register_keras_serializable(package="strangers")
class Tempered(MaskedLM):
    """A masked LM of a user's own, which takes an argument."""

    def __init__(self, encoder, output_embedding_dim, temperature=1.0, **options):
        super().__init__(encoder, output_embedding_dim, **options)
        self.temperature = temperature

    def get_config(self):
        return super().get_config() | {"temperature": self.temperature}


def test_a_head_with_lora_is_refused(tmp_path):
    model = random_model({"num_layers": 1})
    model.head.dense.enable_lora(2)
    for plan in (Plan(num_layers=2), Plan(input_embedding_dim=4)):
        with pytest.raises(UserError, match="the head has LoRA: save the model, which folds it"):
            reallocate(model, str(tmp_path / "made"), plan)
    assert not (tmp_path / "made").exists()


def test_the_head_of_a_class_of_ones_own_is_kept_as_a_masked_lms(tmp_path):
    model = Tempered(random_model({"num_layers": 1}).encoder, 8, temperature=2.0)
    done = reallocate(model, str(tmp_path / "made"), Plan(num_layers=2))
    assert "the head is kept as that of a MaskedLM, and no more as that of a Tempered" in done.notes
    made, _ = read_model(str(tmp_path / "made"))
    assert type(made) is MaskedLM and made.encoder.num_layers == 2


@pytest.mark.parametrize(
    ("arguments", "plan", "wanted"),
    [
        (
            {"layer_sharing": "all", "num_layers": 2},
            {"input_embedding_dim": 4},
            "the head of albert must be of width 4",
        ),
        ({"always_project": False}, {"output_embedding_dim": 5, "vocabulary": "text"}, "the head of bert must be of"),
    ],
    ids=["narrower", "new"],
)
def test_a_head_that_no_family_has_is_refused_before_text_is_read(arguments, plan, wanted, tmp_path):
    sizes = {"hidden_dim": 8, "input_embedding_dim": 8, "num_heads": 2, "num_layers": 1}
    model = MaskedLM(random_model(sizes | arguments).encoder, 8, coupling="coupled")
    text = {"text": "text"} if "input_embedding_dim" in plan else {}
    with pytest.raises(UserError, match=wanted):
        reallocate(model, str(tmp_path / "made"), Plan(**plan, **text), target_kind="huggingface")
    assert not (tmp_path / "made").exists()


def test_a_new_head_beside_one_in_bands_is_refused_before_text_is_read(tmp_path):
    model = random_model(head={"output_embedding_dim": 20, "output_cutoffs": (20,)})
    plan = Plan(input_embedding_dim=4, output_embedding_dim=12, text="text")
    with pytest.raises(UserError, match="a head with output_cutoffs has bands of several widths"):
        reallocate(model, str(tmp_path / "made"), plan)
    assert not (tmp_path / "made").exists()
