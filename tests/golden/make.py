"""Makes the golden files: tiny Hugging Face models with random weights, with inputs and outputs.

python tests/golden/make.py [NAME ...]     (needs the extra `peers`; what it wrote is committed: tests need no PyTorch)

`bert_untied` is made with transformers 5, which has two biases there, of which one is never used: run it with
`.venv-peers5/bin/python`, of `make test-peers`.
"""

import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
SIZES = {
    "vocab_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "initializer_range": 0.4,
    "attn_implementation": "eager",
}
MODELS = {
    "rembert": ("RemBertForMaskedLM", "RemBertConfig", {"input_embedding_size": 6, "output_embedding_size": 20}),
    "bert": ("BertForMaskedLM", "BertConfig", {}),
    "bert_untied": ("BertForMaskedLM", "BertConfig", {"tie_word_embeddings": False}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {"embedding_size": 6}),
}


def main(names: list[str]) -> None:
    """Writes a folder for each model, or for those named."""
    import torch
    import transformers

    rng = np.random.default_rng(0)
    mask = np.array([[1] * 8, [1] * 5 + [0] * 3])
    ids = np.where(mask, rng.integers(5, 40, mask.shape), 0)
    segments = np.array([[0] * 3 + [1] * 5, [0] * 8])
    for name in names or MODELS:
        model_class, config_class, changes = MODELS[name]
        torch.manual_seed(0)
        model = getattr(transformers, model_class)(getattr(transformers, config_class)(**(SIZES | changes))).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
            outputs = model(
                input_ids=torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                token_type_ids=torch.tensor(segments),
                output_hidden_states=True,
            )
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
        np.savez(
            FOLDER / name / "outputs.npz",
            token_ids=ids.astype("int32"),
            segment_ids=segments.astype("int32"),
            padding_mask=mask.astype("int32"),
            logits=outputs.logits.numpy(),
            **{f"hidden_{i}": state.numpy() for i, state in enumerate(outputs.hidden_states)},
        )


if __name__ == "__main__":
    main(sys.argv[1:])
