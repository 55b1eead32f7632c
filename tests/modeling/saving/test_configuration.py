"""What a configuration may name: our classes, those that the user's own program registered, and no framework's."""

import keras
import keras_hub
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.blocks import PostNorm
from rembed_keras.modeling.saving.configuration import check_names, made
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST]], 7)


@keras.saving.register_keras_serializable(package="strangers")
class DoubledBlock(PostNorm):
    """A block of a stranger's: its feed-forward pair is twice as wide."""

    def feed_forward(self, config, dtype=None):
        return super().feed_forward({**config, "intermediate_dim": 2 * config["intermediate_dim"]}, dtype)


@keras.saving.register_keras_serializable(package="strangers")
class OwnAttention(Global):
    """Attention of a stranger's, with an argument of its own."""

    def __init__(self, reach: int = 3):
        super().__init__()
        self.reach = reach

    def restrict(self, mask, positions):
        distance = keras.ops.absolute(positions[:, :, None] - positions[:, None, :])
        return keras.ops.logical_and(mask, distance < self.reach)

    def get_config(self):
        return {"reach": self.reach}


@pytest.mark.any_backend
def test_parts_of_a_strangers_come_back_from_files(tmp_path):
    model = MaskedLM(make_encoder(block=DoubledBlock, attention=[OwnAttention(2), Global()]), 20)
    again = MaskedLM.from_config(model.get_config())
    again.set_weights(model.get_weights())
    model.save_to_preset(str(tmp_path / "preset"))
    preset = MaskedLM.from_preset(str(tmp_path / "preset"))
    expected = forward(model.encoder, INPUTS)["sequence_output"]
    for other in (again, preset):
        np.testing.assert_array_equal(forward(other.encoder, INPUTS)["sequence_output"], expected)
        config = other.encoder.get_config()
        assert config["block"]["registered_name"] == "strangers>DoubledBlock"
        assert config["attention"][0]["config"] == {"reach": 2}
    plain = make_encoder()
    assert model.encoder.count_params() > plain.count_params()


@pytest.mark.any_backend
def test_classes_of_frameworks_are_refused_though_they_are_registered():
    name = next(name for name in keras.saving.get_custom_objects() if name.startswith("keras_hub>"))
    config = {"class_name": name.split(">")[1], "registered_name": name, "module": "keras_hub", "config": {}}
    with pytest.raises(UserError, match="which no model of ours is made of"):
        check_names(config)
    assert keras_hub.__version__


@pytest.mark.any_backend
def test_what_nobody_registered_is_refused():
    config = {"class_name": "Gone", "registered_name": "strangers>Gone", "module": "strangers", "config": {}}
    with pytest.raises(UserError, match="which no model of ours is made of"):
        made(make_encoder().get_config() | {"class_name": "Encoder", "registered_name": None, "block": config}, Encoder)


@pytest.mark.any_backend
def test_a_part_is_asked_for_by_its_module_which_its_package_need_not_import():
    part = {"class_name": "Part", "module": "mine.parts", "registered_name": "mine>Part", "config": {}}
    with pytest.raises(
        UserError, match=r"import mine\.parts first, in the recipe of a run or by --allow-import mine\."
    ):
        check_names(part)


@pytest.mark.any_backend
def test_a_folder_comes_before_a_preset_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Encoder.from_preset("rembed_small").num_layers == 6
    encoder = make_encoder(num_layers=1)
    encoder.save_to_preset("rembed_small")
    assert Encoder.from_preset("rembed_small").arguments == encoder.arguments
    assert MaskedLM.from_preset("rembed_small", output_embedding_dim=4).encoder.num_layers == 1


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
@pytest.mark.skipif(not hasattr(keras.quantizers, "Int4QuantizationConfig"), reason="this Keras has modes alone")
@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        pytest.param("Int8", {"activation_quantizer": None}, marks=pytest.mark.any_backend),
        ("Int4", {"block_size": -1}),
    ],
)
@pytest.mark.usefixtures("without_old_garbage")
def test_models_that_are_quantized_in_another_way_than_usual_come_back(mode, arguments, tmp_path):
    model = Classifier(make_encoder(), 3, dropout=0)
    model.set_weights([np.random.default_rng(1).normal(0, 0.3, weight.shape) for weight in model.weights])
    model.quantize(config=getattr(keras.quantizers, f"{mode}QuantizationConfig")(**arguments))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    inputs = make_inputs([[FIRST], [SECOND]], 7)
    np.testing.assert_array_equal(forward(again, inputs), forward(model, inputs))
    assert again.get_config() == model.get_config()
