"""Languages that a recipe's probes ask of its corpus, held against those that it has."""

from collections.abc import Sequence
from pathlib import Path

from rembed_keras.config.initial import PRETRAIN, PROBE
from rembed_keras.config.misfits.stages import PREPARE
from rembed_keras.config.recipes.recipe import RUN, Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.data.text import text_files
from rembed_keras.errors import UserError, did_you_mean

KINDS = (PRETRAIN, PREPARE)


def check_words(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks that the corpus has the languages whose words are compared, as far as it is there, or its text.

    Args:
        recipe: the recipe.
        listed: its stages.

    Raises:
        UserError: naming the first language that it has not.
    """
    for number, stage in enumerate(listed):
        words = recipe.arguments(stage).get("words") if stage.target == PROBE else None
        if not isinstance(words, list | tuple):
            continue
        known, place = _languages(recipe, listed[:number])
        missing = next((each for each in words if isinstance(each, str) and each not in known), None)
        if known and missing is not None:
            message = (
                f"words has {missing!r}, which is no language of {place}: leave it out, or prepare its text too"
                f"{did_you_mean(missing, known)}"
            )
            raise UserError(f"{stage.selector}: {message}{recipe.places(message, (stage,))}")


def _languages(recipe, before):
    """Languages of the corpus that some stages leave, and what says so; none where that is not known yet."""
    pretrains, prepares = ([recipe.arguments(each) for each in before if each.target == kind] for kind in KINDS)
    corpus, workdir = pretrains[-1].get("corpus") if pretrains else None, recipe.arguments(RUN).get("workdir")
    if corpus is None and isinstance(workdir, str):
        corpus = f"{workdir}/corpus"
    if isinstance(corpus, str) and Path(corpus, "manifest.json").is_file():
        from rembed_keras.data.corpus import Corpus  # which takes a fifth of a second

        return Corpus(corpus).languages, f"the corpus {corpus}"
    text_dir, languages = (prepares[-1].get(name) for name in ("text_dir", "languages")) if prepares else (None, None)
    if isinstance(languages, list | tuple):
        return languages, "what is prepared"
    try:
        return [*text_files(text_dir)] if isinstance(text_dir, str) else [], f"the text in {text_dir}"
    except UserError:  # of another form, or one that is not there
        return [], ""
