"""A BERT of Hugging Face's with a WordPiece tokenizer is fine-tuned, and answers."""

import json

import pytest
import tokenizers

from rembed_keras.interop import write
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.training import AdamW, Answerer, finetune, lines_of
from rembed_keras.training.loop.workdir import Workdir
from tests.interop.models import random_model

pytestmark = pytest.mark.usefixtures("without_graphs")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "save", "open", "table", "##s", "file"]


def test_it_is_fine_tuned_and_answers(tmp_path):
    bert = {"vocabulary_size": len(PIECES), "input_embedding_dim": 16, "always_project": False}
    write(random_model(bert).encoder, str(tmp_path / "bert"), "huggingface", None)
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    made = tokenizers.BertWordPieceTokenizer(vocab=vocabulary)
    made.save(str(tmp_path / "bert/tokenizer.json"))
    examples = [Labelled(str(i), text, None, text[:4]) for i, text in enumerate(["save files", "open tables"] * 8)]
    task = Classification("verbs", Splits(examples, {"en": examples}, {"en": examples}))
    workdir = Workdir(tmp_path / "run")
    settings = {"starts": ("pretrained",), "epochs": 10, "batch_size": 16, "seeds": (0,), "sequence_length": 8}
    finetune(
        workdir,
        AdamW,
        task,
        encoder=None,
        pretrained=str(tmp_path / "bert"),
        jit_compile=False,
        learning_rates=(0.02,),
        **settings,
    )
    workdir.close()
    (tmp_path / "mine.jsonl").write_text('{"text": "Open Tables"}\n{"text": "SAVE files"}\n')
    answerer = Answerer(workdir.path)
    assert answerer.tokenizer.path.name == "tokenizer.json"
    answers = [
        json.loads(line)["answer"] for line in lines_of(answerer.answers(answerer.read(tmp_path / "mine.jsonl")))
    ]
    assert answers == ["open", "save"]
