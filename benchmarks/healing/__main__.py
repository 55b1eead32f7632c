"""What of an encoder is left by narrower tables, and what healing brings back: `python -m benchmarks.healing SOURCE`.

SOURCE, a Hugging Face folder or a preset, is reallocated to each width, by `rembed reallocate` and by a plain SVD of
its table, and healed by each recipe of recipes/reallocate for some minutes; beside them a model of the same shape is
trained from scratch. Each is held against SOURCE: the mean cosine of mean-pooled sentence vectors, on paragraphs of the
help that nothing was trained on and on the Universal Declaration, and a linear probe of topics in English. Text is the
embedded help, in English or in more languages; with more and English, each sentence of the Declaration is to find its
translation too, from English and into it; in one language, each half of a paragraph of the help is to find the other.
What is in FOLDER already is not done again; what was measured otherwise, or of another SOURCE, belongs in a FOLDER of
its own. Writes FOLDER/healing.json, healing.md and healing.png.

Minutes become steps by the time of a step on this machine, which is measured once: so a run is repeatable, and a busy
machine gives no less training. `--steps 20` says the steps instead.
"""

import argparse
import itertools
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.healing.yardstick import Yardstick, paragraphs

WIDTHS = (192, 128, 96, 64, 32)
MINUTES = (2.0, 5.0, 15.0)
EVERY = 19  # of the paragraphs one is held out
RATES = {"heal_mlm": 1e-4, "heal_distill": 2e-4}
TIMED = 4  # steps
SETTINGS = ("rows", "languages", "sentences", "examples", "bindings")  # that all rows of a folder have in common


def output_width(source: Path) -> int:
    """E_out of the head that masked LM begins with: the source's own, or of a new one, as wide as its states."""
    from rembed_keras import interop

    config = interop.read_model(str(source))[0].get_config()
    return config.get("output_embedding_dim") or config["hidden_dim"]


def starts(source: Path, folder: Path, text: Path, width: int, head: int) -> dict[str, Path]:
    """Folders of the models of one width that nothing was trained of: reallocated, by plain SVD, and random.

    They have a head of width `head`.
    """
    import keras

    from rembed_keras import interop
    from rembed_keras.interop.reallocation.embeddings import tables_of
    from rembed_keras.modeling import Encoder, MaskedLM

    paths = {name: folder / f"{name}-{width}" for name in ("reallocated", "svd", "scratch")}
    model, tokenizer = interop.read_model(str(source))
    if not paths["reallocated"].exists():
        plan = interop.Plan(width, output_embedding_dim=head, text=str(text))
        interop.reallocate(model, str(paths["reallocated"]), plan, tokenizer)
    made, _ = interop.read_model(str(paths["reallocated"]))
    encoder = made if isinstance(made, Encoder) else made.encoder
    if not paths["scratch"].exists():
        keras.utils.set_random_seed(0)
        random = Encoder.from_config(encoder.get_config())
        interop.write(MaskedLM(random, head), str(paths["scratch"]), "preset", tokenizer)
    if not paths["svd"].exists():
        wide = model if isinstance(model, Encoder) else model.encoder
        tables = tables_of(wide)
        right = np.linalg.svd(np.asarray(tables.token), full_matrices=False)[2][:width]  # [E, D]
        parts, norm = encoder.parts, wide.parts.embeddings.norm
        for name in ("token", "position", "segment"):
            rows = keras.ops.convert_to_numpy(getattr(wide.parts.embeddings, name).embeddings)
            getattr(parts.embeddings, name).embeddings.assign(rows @ right.T)
        for weight, value in zip(parts.embeddings.norm.weights, (np.ones(width), np.zeros(width)), strict=True):
            weight.assign(value)
        gamma, beta = (keras.ops.convert_to_numpy(weight) for weight in norm.weights)
        parts.projection.kernel.assign(right * gamma)
        parts.projection.bias.assign(beta)
        interop.write(made, str(paths["svd"]), "preset", tokenizer)
    return paths


def heal(
    given: argparse.Namespace, recipe: str, initial: Path, head: int, workdir: Path, steps: int, seed: int
) -> None:
    """Runs a recipe of recipes/reallocate from a folder, whose head has width `head`."""
    from rembed_keras import config

    batch, length = given.rows.split("x")
    knobs = {"INITIAL": initial, "TEXT_DIR": given.out / "text", "WORKDIR": workdir, "STEPS": steps, "SEED": seed}
    knobs |= {"BATCH_SIZE": batch, "SEQUENCE_LENGTH": length, "LEARNING_RATE": RATES[recipe]}
    knobs |= {"WARMUP_STEPS": max(1, steps // 10), "CHECKPOINT_EVERY": steps, "LOG_EVERY": max(1, steps // 10)}
    if recipe == "heal_mlm":
        knobs["OUTPUT_EMBEDDING_DIM"] = head
    else:
        knobs["TEACHER"] = given.source
    bound = [*(f"{key}={value}" for key, value in knobs.items()), *given.bindings]
    config.run(config.load(f"recipes/reallocate/{recipe}.gin", bound))


def table(rows: list[dict]) -> str:
    """The results in Markdown, means over seeds ± their standard deviation."""
    measures = [name for name in ("help", "declaration", "retrieval", "topics") if name in rows[0]]
    lines = [f"| E_in | start | healed by | steps | seeds | parameters | {' | '.join(measures)} |"]
    lines.append("|--:|---|---|--:|--:|--:|" + "--:|" * len(measures))
    groups: dict[tuple, list[dict]] = {}
    for row in sorted(rows, key=lambda row: (row["recipe"] is not None, -row["kept"], row["recipe"], row["steps"])):
        groups.setdefault((row["width"], row["start"], row["recipe"], row["steps"], row["kept"]), []).append(row)
    for (width, start, recipe, steps, kept), own in groups.items():
        seeds = len(own) if recipe else "-"
        cells = [_mean([row[name] for row in own if name in row]) for name in measures]
        lines.append(
            f"| {width} | {start} | {recipe or '-'} | {steps} | {seeds} | {kept / 1e6:.1f}M | {' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def _mean(values):
    if not values:
        return "-"
    spread = f" ±{np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def plot(rows: list[dict], whole: int, texts: list[str], path: Path) -> None:
    """Similarity to the source against the share of its parameters that are kept; a line for each way to get there."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(5 * len(texts), 4), layout="constrained")
    axes = figure.subplots(1, len(texts), sharey=True, squeeze=False)[0]
    colors = plt.colormaps["tab20"].colors  # in pairs of a dark and a light one
    for axis, text in zip(axes, texts, strict=True):
        axis.set_prop_cycle(color=[*colors[::2], *colors[1::2]])
        for key in dict.fromkeys(
            (row["start"], row["recipe"], row["steps"]) for row in rows if row["start"] != "source"
        ):
            own = [row for row in rows if (row["start"], row["recipe"], row["steps"]) == key]
            sizes = sorted({row["kept"] for row in own})
            means = [np.mean([row[text] for row in own if row["kept"] == kept]) for kept in sizes]
            label = f"{key[0]}, {key[1]} of {key[2]} steps" if key[1] else key[0]
            axis.plot([kept / whole for kept in sizes], means, "o-", label=label)
        axis.set(title=text, xlabel="share of the parameters")
    axes[0].set_ylabel("cosine with the source's vectors")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=120)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/healing"))
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--minutes", type=float, nargs="+", default=MINUTES)
    parser.add_argument("--steps", type=int, nargs="+", help="instead of minutes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", default="32x128", help="BATCH_SIZE x SEQUENCE_LENGTH")
    parser.add_argument("--recipes", nargs="*", default=[*RATES], choices=RATES, help="what heals; maybe nothing")
    parser.add_argument("--starts", nargs="+", default=["reallocated", "scratch"], help="what is trained")
    parser.add_argument("--languages", nargs="+", default=["en"], help="of the text; all: those of the embedded help")
    parser.add_argument("--sentences", type=int, default=200, help="of the help that are compared, of all languages")
    parser.add_argument("--examples", type=int, default=1500, help="of the topics, to fit the probe on")
    parser.add_argument("--bindings", nargs="+", default=[], help="more of the recipes, as DTYPE=mixed_bfloat16")
    return parser.parse_args()


def check_settings(given: argparse.Namespace) -> None:
    """Ends the program where FOLDER has what other settings gave, or another source, and keeps those of a new one."""
    path = given.out / "settings.json"
    source = str(given.source.resolve() if given.source.exists() else given.source)
    ours = {"source": source} | {name: getattr(given, name) for name in SETTINGS}
    there = json.loads(path.read_text()) if path.exists() else ours
    for name, value in ours.items():
        if there[name] != value:
            sys.exit(f"{given.out} has results of {name} {there[name]}, and not {value}: choose another --out")
    given.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(ours, indent=1) + "\n")


def chosen_languages(given: argparse.Namespace, known: list[str]) -> list[str]:
    """The languages of the text; ends the program for those that the embedded help lacks, or too few sentences."""
    languages = known if given.languages == ["all"] else given.languages
    for language in languages:
        if language not in known:
            sys.exit(f"--languages {language}: the embedded help has {', '.join(known)}")
    if given.sentences < len(languages):
        sys.exit(f"--sentences {given.sentences} are fewer than the {len(languages)} languages")
    return languages


class Results:
    """The rows of a folder, and what is drawn of them; what is there is not measured again.

    Args:
        folder: of healing.json and healing.md.
        yardstick: measures a model.
    """

    def __init__(self, folder: Path, yardstick: Yardstick):
        self._folder, self._yardstick = folder, yardstick
        path = folder / "healing.json"
        self.rows: list[dict] = json.loads(path.read_text()) if path.exists() else []

    def __contains__(self, about: dict) -> bool:
        return any(about.items() <= row.items() for row in self.rows)

    def add(self, place: Path, about: dict) -> None:
        """Measures the model in a folder, unless there is a row of it."""
        from rembed_keras.analysis.cost.ledger import ledger
        from rembed_keras.training.initial.places import arguments_of

        if about in self:
            return
        self.rows.append(about | {"kept": ledger(arguments_of(place)[0]).kept} | self._yardstick.measure(place))
        (self._folder / "healing.json").write_text(json.dumps(self.rows, indent=1) + "\n")
        (self._folder / "healing.md").write_text(table(self.rows))
        print(json.dumps(self.rows[-1]), flush=True)


def split_text(files: dict[str, Path], languages: list[str], given: argparse.Namespace) -> list[str]:
    """Writes FOLDER/text, of the languages' files, and gives the paragraphs that are held out of it."""
    text = given.out / "text"
    text.mkdir(exist_ok=True)
    held_out = []
    for language in languages:
        lines = paragraphs(files[language])
        (text / f"{language}.txt").write_text("\n".join(line for i, line in enumerate(lines) if i % EVERY))
        held_out += lines[::EVERY][: given.sentences // len(languages)]
    return held_out


def main() -> None:
    """Does what the command line asks for and is not done yet."""
    given = arguments()
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras.data import sample
    from rembed_keras.errors import UserError
    from rembed_keras.tasks.retrieval.parallel_text import ParallelText
    from rembed_keras.training.initial.places import arguments_of

    try:
        whole = arguments_of(given.source)[0]
    except UserError as error:
        sys.exit(str(error))
    files = {path.name.split(".")[0]: path for path in sorted(sample.text_folder().glob("*.txt.gz"))}
    languages = chosen_languages(given, [*files])
    check_settings(given)
    held_out = split_text(files, languages, given)
    parallel = ParallelText(sample.declarations_folder())
    parallel.lines = {language: parallel.lines[language] for language in languages}
    results = Results(given.out, Yardstick(given.source, {"help": held_out}, parallel, given.examples))
    head = output_width(given.source)  # also where masked LM does not heal yet: it will find these folders
    untrained = {"recipe": None, "steps": 0, "seed": 0}
    results.add(given.source, {"width": whole["input_embedding_dim"], "start": "source"} | untrained)
    for width in given.widths:
        places = starts(given.source, given.out, given.out / "text", width, head)
        for start, place in places.items():
            results.add(place, {"width": width, "start": start} | untrained)
        for recipe in given.recipes:
            durations = given.steps or [_steps(given, recipe, places, head, minutes) for minutes in given.minutes]
            for steps, start, seed in itertools.product(durations, given.starts, range(given.seeds)):
                about = {"width": width, "start": start, "recipe": recipe, "steps": steps, "seed": seed}
                if about not in results:
                    workdir = given.out / f"{recipe}-{start}-{width}-{steps}-{seed}"
                    heal(given, recipe, places[start], head, workdir, steps, seed)
                    results.add(workdir, about)
    plot(results.rows, results.rows[0]["kept"], ["help", "declaration"], given.out / "healing.png")


def _steps(given, recipe, places, head, minutes):
    """How many steps take so many minutes, by a short run that is timed once."""
    path = given.out / f"seconds-{recipe}.json"
    if not path.exists():
        workdir = given.out / f"timed-{recipe}"
        seconds = []
        for steps in (1, 1 + TIMED):  # compilation and the corpus are in both
            shutil.rmtree(workdir, ignore_errors=True)
            begun = time.perf_counter()
            heal(given, recipe, places["reallocated"], head, workdir, steps, 0)
            seconds.append(time.perf_counter() - begun)
        path.write_text(json.dumps(max(seconds[1] - seconds[0], 1e-3) / TIMED))
    return max(10, round(60 * minutes / json.loads(path.read_text())))


if __name__ == "__main__":
    main()
