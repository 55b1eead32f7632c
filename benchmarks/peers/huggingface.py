"""Hugging Face on PyTorch: RemBERT as it is shipped and with masked tokens gathered by hand, and ModernBERT."""

import os

import torch
import transformers

from benchmarks.shapes import CLIP_NORM, WEIGHT_DECAY, Shape

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def training(shape: Shape, variant: str):
    """A step of pre-training; of the variant's words, "bfloat16" autocasts and "compiled" compiles."""
    _prepare()
    options = variant.split(", ")
    model = _modernbert(shape) if "modernbert" in options else transformers.RemBertForMaskedLM(_config(shape))
    model.to(DEVICE)
    score = _gathered if "gathered" in options else _shipped
    if "compiled" in options:
        score = torch.compile(score)

    def loss_of(batch):
        names = ("token_ids", "mask_positions", "targets")
        ids, positions, targets = (torch.tensor(batch[name], device=DEVICE).long() for name in names)
        with torch.autocast(DEVICE, torch.bfloat16, enabled="bfloat16" in options):
            return score(model, ids, positions, targets)

    return _step(model, shape, loss_of)


def _shipped(model, ids, positions, targets):
    return model(ids, labels=torch.full_like(ids, -100).scatter(1, positions, targets)).loss


def _gathered(model, ids, positions, targets):
    states = model.rembert(ids)[0]
    index = positions[:, :, None].expand(-1, -1, states.shape[-1])
    logits = model.cls(torch.gather(states, 1, index))  # [B, P, V]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def device_bytes() -> int | None:
    """The most memory that was in use on an accelerator."""
    return torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None


def finetuning(shape: Shape, variant: str):
    """A step of fine-tuning."""
    _prepare()
    model = transformers.RemBertForSequenceClassification(_config(shape))
    return _step(
        model,
        shape,
        lambda batch: model(torch.tensor(batch["token_ids"]), labels=torch.tensor(batch["labels"]).long()).loss,
    )


def inference(shape: Shape, variant: str):
    """Hidden states of a batch."""
    _prepare()
    model = transformers.RemBertModel(_config(shape)).eval()

    @torch.inference_mode()
    def encode(batch):
        return float(model(torch.tensor(batch["token_ids"]))[0][0, 0, 0])

    return encode


def _prepare():
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)


def _config(shape):
    return transformers.RemBertConfig(
        vocab_size=shape.vocabulary_size,
        hidden_size=shape.hidden_dim,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        input_embedding_size=shape.input_embedding_dim,
        output_embedding_size=shape.output_embedding_dim,
        intermediate_size=shape.intermediate_dim,
        max_position_embeddings=shape.sequence_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )


def _modernbert(shape):
    """As many parameters a block: its feed-forward pair has three matrices where RemBERT's has two."""
    config = transformers.ModernBertConfig(
        vocab_size=shape.vocabulary_size,
        hidden_size=shape.hidden_dim,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        intermediate_size=shape.intermediate_dim * 2 // 3,
        max_position_embeddings=shape.sequence_length,
        sparse_prediction=True,
        reference_compile=False,
        pad_token_id=0,
    )
    return transformers.ModernBertForMaskedLM(config)


def _step(model, shape, loss_of):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), shape.learning_rate, weight_decay=WEIGHT_DECAY)

    def step(batch):
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step
