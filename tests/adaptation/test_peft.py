"""RoAd and LoRA against Hugging Face's PEFT: a BERT of random weights, its projections changed alike, padded rows."""

import numpy as np
import pytest

from rembed_keras.adaptation.methods import Lora, RoAd
from rembed_keras.adaptation.tuning import tune
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.modeling import Classifier
from rembed_keras.modeling.layers.adapters import PROJECTIONS, merge
from tests.interop.huggingface.test_transformers import INPUTS, real, their_outputs, theirs
from tests.modeling.forward import forward

# where their BERT has the projections that we name
PATHS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
}
CASES = {
    "RoAd 1": (RoAd(1, group_size=8), "RoadConfig", {"variant": "road_1", "group_size": 8}),
    "RoAd 2": (RoAd(2, group_size=4), "RoadConfig", {"variant": "road_2", "group_size": 4}),
    "RoAd 4": (RoAd(4, group_size=2), "RoadConfig", {"variant": "road_4", "group_size": 2}),
    "RoAd of whole rows": (
        RoAd(2, targets=("query", "output")),
        "RoadConfig",
        {"variant": "road_2", "group_size": 16},
    ),
    "LoRA": (Lora(3, alpha=5.0, targets=PROJECTIONS), "LoraConfig", {"r": 3, "lora_alpha": 5}),
}


def randomized(torch, model):
    """Values for all that PEFT added, as if much had been learned."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "road_" in name or "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def copied(change, layer):
    """Gives a change of ours the values of theirs."""
    if hasattr(layer, "road_theta"):
        for ours, parameters in ((change.angle, layer.road_theta), (change.scale, layer.road_alpha)):
            variants, groups, half = ours.shape  # theirs go group by group
            ours.assign(parameters["default"].detach().numpy().reshape(groups, variants, half).transpose(1, 0, 2))
    else:
        change.left.assign(layer.lora_A["default"].weight.detach().numpy().T)
        change.right.assign(layer.lora_B["default"].weight.detach().numpy().T)


@pytest.mark.parametrize("name", CASES)
def test_changed_projections_are_those_of_peft(name, peers, tmp_path):
    torch, _ = peers
    peft = pytest.importorskip("peft", reason="make test-peers runs it")
    method, config, arguments = CASES[name]
    model = theirs(peers, "Bert", "Model", num_hidden_layers=2, initializer_range=0.2)
    model.save_pretrained(tmp_path)
    encoder, _ = read_huggingface(tmp_path)
    plain = forward(encoder, INPUTS)["sequence_output"]
    tune(Classifier(encoder, 2), [method])
    modules = [f"{i}.{PATHS[target]}" for i in range(2) for target in method.targets]
    randomized(torch, peft.inject_adapter_in_model(getattr(peft, config)(target_modules=modules, **arguments), model))
    for i, block in enumerate(encoder.parts.blocks):
        projections = block.attention.projections | block.feed_forward.projections
        for target in method.targets:
            (change,) = projections[target].changes
            copied(change, model.encoder.layer[i].get_submodule(PATHS[target]))
    expected = their_outputs(peers, model).last_hidden_state
    assert np.abs(plain - expected.numpy()).max() > 0.1
    np.testing.assert_allclose(real(forward(encoder, INPUTS)["sequence_output"]), real(expected), atol=1e-5)
    merge(encoder)
    np.testing.assert_allclose(real(forward(encoder, INPUTS)["sequence_output"]), real(expected), atol=1e-5)
