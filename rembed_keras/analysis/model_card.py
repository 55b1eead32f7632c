"""The card of a model that is passed on, generated from its run: what it is, costs, read and scored, and its limits.

Every number stands in a file of the run, so that a card is no more and no less than what the run kept.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rembed_keras.analysis.pages.records import is_in_nats, is_smoke, lines_of
from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.score_tables import scores_table
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.data.corpus import corpus_of_run
from rembed_keras.data.json_files import read_json, read_whole_lines, understood
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import has_position_table

RECIPE = "recipe.gin"  # beside the card
AS_IT_IS = ("retrieval/", "probe/")  # how the names of tasks begin of which nothing was fine-tuned
INITIAL = "initial_weights.json"  # of a run that did not start from scratch
WITHOUT_SCORES = ("prepare", "pretrain", "finetune", "trace_retrieval")  # stages, as healing has the first two alone


def pretraining_log(run: str | Path) -> list[dict]:
    """The rows of pre-training in the log of a finished run.

    Raises:
        UserError: if the run is not finished or did not pre-train, or its log is damaged or has no loss of that.
    """
    folder, path = Path(run), Path(run) / "metrics.jsonl"
    if not (folder / "finished.json").is_file():
        raise UserError(f"{folder} is not the folder of a finished run: run its recipe to the end")
    if not (folder / "checkpoints").is_dir():
        raise UserError(f"{folder} has no checkpoints: it is not the folder of a run that pre-trained")
    rows = read_whole_lines(path)
    found = [row for row in rows if row.get("stage") == "pretrain" and row.keys() >= {"step", "tokens"}]
    if not any(isinstance(row.get("loss"), float) for row in found):  # null after steps that were all skipped
        raise UserError(f"{path} has no loss of pre-training: run the recipe again")
    return found


def model_card(run: str | Path, log: Sequence[dict], name: str, arguments: dict, licence: str | None = None) -> str:
    """The card of the encoder that a run pre-trained, in Markdown.

    Args:
        run: the run's folder; it was scored, unless its recipe has no stage that does.
        log: its `pretraining_log`.
        name: what the model is called.
        arguments: of the encoder that is kept, as `Encoder.arguments` has them.
        licence: what is to be said of the text's licence; None for nothing.

    Raises:
        UserError: if the run's scores are gone, or its files are damaged.
    """
    folder, last = Path(run), log[-1]
    corpus = corpus_of_run(folder)
    layers = f"{arguments['num_layers']} layer{'s' * (arguments['num_layers'] > 1)}"
    about = (
        f"An encoder of {layers} of width {arguments['hidden_dim']} with an input table of "
        f"{arguments['vocabulary_size']:,} × {arguments['input_embedding_dim']}, pre-trained in "
        f"{len(corpus.languages)} language{'s' * (len(corpus.languages) > 1)}."
    )
    opened = (
        "```python\nfrom rembed_keras import Encoder\n\n"
        f"encoder = Encoder.from_preset({json.dumps(name, ensure_ascii=False)})\n"
        'vectors = encoder.encode(["a text", "another"])\n```'
    )
    smoke = "**A smoke run made it, to try its recipe: nothing here means anything.**"
    start = _start(folder)
    trained = (
        f"{last['step']:,} steps, {last['tokens']:,} tokens, to a training loss of {_loss(log)}. `{RECIPE}` "
        "beside this card is the recipe with all that it includes:"
    )
    scores, seeds = _scores(folder)
    blocks = [
        _metadata(corpus.languages),
        f"# {name}",
        *([smoke] if is_smoke(folder) else []),
        about,
        opened,
        "Weights are stored as float16 and read as float32. The pre-training head was dropped.",
        "## Parameters",
        _ledger_table(folder / "ledger.json").markdown(),
        "## Data",
        _data(corpus, licence),
        "## Training",
        *([start] if start else []),
        trained,
        f"```\nrembed run {RECIPE}\n```",
        _environment(folder / "environment.json"),
        "## Scores",
        scores,
        "## Limits",
        _limits(corpus, last, arguments, seeds, bool(start)),
    ]
    return "\n\n".join(blocks) + "\n"


def _metadata(languages):
    """What hubs read of a card, in YAML; of a language its code alone, without a script or a country."""
    codes = dict.fromkeys(language.replace("_", "-").partition("-")[0].lower() for language in languages)
    known = [code for code in codes if re.fullmatch("[a-z]{2,3}", code)]
    lines = ["library_name: keras-hub", "pipeline_tag: feature-extraction", "tags: [rembed-keras, encoder]"]
    return "\n".join(["---", *lines, f"language: {json.dumps(known)}", "---"])  # quoted: no is Norwegian


def _ledger_table(path):
    with understood(path, "a ledger"):
        ledger = read_json(path)
        parts = {name: (entry["parameters"], entry["kept"]) for name, entry in ledger["parts"].items()}
        rows = [[name, f"{count:,}", "kept" if is_kept else "dropped"] for name, (count, is_kept) in parts.items()]
        totals = [[f"all {kind}", f"{ledger[kind]:,}", kind] for kind in ("kept", "dropped")]
    return Table("What is kept and what is dropped", ["part", "parameters", ""], [*rows, *totals], words=1)


def _data(corpus, licence):
    counts = sorted(corpus.num_tokens.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{language} {count:,}" for language, count in counts)
    text = f"{sum(corpus.num_tokens.values()):,} tokens of text to train on, by language: {shown}."
    quoted = [] if licence is None else ["\n".join(f"> {line}" for line in licence.splitlines())]
    return "\n\n".join([text, *quoted])


def _start(folder):
    """What the run started from, by the last names of its path, which is of the machine that trained; "" of scratch."""
    if not (folder / INITIAL).is_file():
        return ""
    record = read_json(folder / INITIAL)
    place = Path(str(record.get("place")))
    name = "/".join(place.parts[-3:] if place.parent.name == "checkpoints" else place.parts[-1:])
    read = ", ".join(record.get("pretraining_languages") or []) or "languages that are not recorded"
    return (
        f"It did not start from scratch, but from the weights of `{name}`, which had been trained before on text in "
        f"{read}. Steps, tokens and text on this card are of the training since, and licence and limits of those "
        "weights hold too."
    )


def _environment(path):
    with understood(path, "the environment of a run"):
        found = read_json(path)
        versions = ", ".join(f"{package} {version}" for package, version in found.get("versions", {}).items())
    return f"Run with Python {found.get('python')}, backend {found.get('backend')}: {versions}."


def _scores(folder):
    """What a card says of a run's scores, and from how many seeds a task was fine-tuned."""
    if not (folder / "scores.json").is_file() and _scores_nothing(folder / "config.gin"):
        return "None: no stage of the recipe writes any.", 0
    scored = report([folder])
    beside = "Beside each system stand the baselines of the same run on the same examples, where it has them."
    return f"{scores_table(scored.scores).markdown()}\n\n{beside}", _tuned_seeds(scored.runs[0])


def _scores_nothing(recipe):
    """Whether a run's recipe has stages, and none but those that are known to score nothing."""
    lines = lines_of(recipe.read_text(encoding="utf-8")) if recipe.is_file() else []
    listed = next((line.value for line in lines if line.name == "training.run.stages"), "")
    names = [name.rpartition(".")[2] for name in re.findall(r"@([\w./]+)", listed)]
    return bool(names) and all(name in WITHOUT_SCORES for name in names)


def _tuned_seeds(run):
    """From how many seeds a task was fine-tuned, at most; 0 where the encoder was scored as it is."""
    counts = [0]
    for measure, systems in run.values.items():
        for languages in () if measure.task.startswith(AS_IT_IS) else systems.values():
            scored = [seed for seeds in languages.values() for seed in seeds if not math.isnan(seeds[seed])]
            counts.append(len({*scored} - {None}))
    return max(counts)


def _limits(corpus, last, arguments, seeds, is_continued):
    share = last["tokens"] / sum(corpus.num_tokens.values())
    read = (
        f"It read {last['tokens']:,} tokens, {share:.1f} times the size of its text. Published encoders read "
        "billions: take it to learn, to test and to compare, and not for the state of the art."
    )
    if is_continued:
        read = f"Since it started from those weights it read {last['tokens']:,} tokens, {share:.1f} times this text."
    tuned = f"; scores are of {seeds} seed{'s' * (seeds > 1)} of fine-tuning at most" if seeds else ""
    once = f"It was pre-trained once{tuned}. What another pre-training would score is unknown."
    lines = [
        read,
        "It knows the kind of text named above. Scores on other kinds, and in other languages, are unknown.",
        length_limit(arguments),
        "The pooler was not trained by masked LM: pool by the mean, as `encode` does, or fine-tune.",
        once,
        "What its text says of people and things, it may repeat. No test of bias was made.",
    ]
    return "\n".join(f"* {line}" for line in lines)


def length_limit(arguments: Mapping) -> str:
    """How many tokens an encoder of some arguments reads, as a card says it."""
    tokens = arguments["max_sequence_length"]
    if has_position_table(arguments):
        return f"It reads up to {tokens} tokens of a text."
    return f"It reads {tokens} tokens of a text by default, and can read more: it has no table of positions."


def _loss(log):
    """The last loss, in nats if it is a cross-entropy alone."""
    row = next(row for row in reversed(log) if isinstance(row.get("loss"), float))
    return f"{row['loss']:.2f}{' nats' * is_in_nats(row)}"
