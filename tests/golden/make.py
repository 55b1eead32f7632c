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
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {"type_vocab_size": 2, "max_position_embeddings": 14}),
    "electra": ("ElectraForPreTraining", "ElectraConfig", {"embedding_size": 6}),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {"hidden_dim": 24}),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {"global_attn_every_n_layers": 2, "local_attention": 4, "local_rope_theta": 50.0, "pad_token_id": 0},
    ),
    "xlm_roberta_xl": (
        "XLMRobertaXLForMaskedLM",
        "XLMRobertaXLConfig",
        {"type_vocab_size": 2, "max_position_embeddings": 14},
    ),
    "mobilebert": (
        "MobileBertForMaskedLM",
        "MobileBertConfig",
        {
            "embedding_size": 6,
            "intra_bottleneck_size": 8,
            "num_feedforward_networks": 2,
            "pad_token_id": 3,
            "initializer_range": 0.2,
        },
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        {
            "relative_attention": True,
            "position_biased_input": False,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_buckets": 4,
            "pos_att_type": ["p2c", "c2p"],
            "type_vocab_size": 2,
        },
    ),
}


def main(names: list[str]) -> None:
    """Writes a folder for each model, or for those named."""
    import torch
    import transformers

    rng = np.random.default_rng(0)
    mask = np.array([[1] * 8, [1] * 5 + [0] * 3])
    words, both = rng.integers(5, 40, mask.shape), np.array([[0] * 3 + [1] * 5, [0] * 8])
    for name in names or MODELS:
        model_class, config_class, changes = MODELS[name]
        torch.manual_seed(0)
        config = getattr(transformers, config_class)(**(SIZES | changes))
        ids = np.where(mask, words, config.pad_token_id)
        has_segments = getattr(config, "type_vocab_size", 0) > 1
        segments = both * has_segments
        model = getattr(transformers, model_class)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
            inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
            inputs |= {"token_type_ids": torch.tensor(segments)} if has_segments else {}
            outputs = model(**inputs, output_hidden_states=True)
            last = model.base_model(**inputs).last_hidden_state  # ModernBERT's states have it before its norm
            states = [*outputs.hidden_states[:-1], last]
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
        np.savez(
            FOLDER / name / "outputs.npz",
            token_ids=ids.astype("int32"),
            segment_ids=segments.astype("int32"),
            padding_mask=mask.astype("int32"),
            **({"logits": outputs.logits.numpy()} if outputs.logits.ndim == 3 else {}),  # of words, not of detection
            **{f"hidden_{i}": state.numpy() for i, state in enumerate(states)},
        )


if __name__ == "__main__":
    main(sys.argv[1:])
