"""A data set: a function that gives the examples of a task, of files or of another data set."""

from dataclasses import replace

from rembed_keras.tasks.kinds.examples import Splits


def joined(splits: Splits) -> Splits:
    """Each text joined to the next, with the labels of both, as "sound|video".

    >>> from rembed_keras.tasks.kinds.examples import Labelled
    >>> examples = [Labelled("1", "play it", None, "sound"), Labelled("2", "watch it", None, "video")]
    >>> joined(Splits(examples)).train[0]
    Labelled(id='1', text='play it watch it', pair=None, label='sound|video', group=None, answer=None)
    """
    dev = {language: _joined(examples) for language, examples in splits.dev.items()}
    test = {language: _joined(examples) for language, examples in splits.test.items()}
    return replace(splits, train=_joined(splits.train), dev=dev, test=test)


def _joined(examples):
    following = [*examples[1:], *examples[:1]]
    return [
        replace(one, text=f"{one.text} {other.text}", label="|".join(sorted({one.label, other.label})))
        for one, other in zip(examples, following, strict=True)
    ]
