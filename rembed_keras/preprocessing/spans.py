"""Questions and passages with an answer."""

import keras

from rembed_keras.errors import Count, UserError
from rembed_keras.preprocessing.labels import is_list, whole_numbers
from rembed_keras.preprocessing.texts import TextPreprocessor, rows_of, weights_of_rows
from rembed_keras.preprocessing.tokenizer import Tokenizer, as_texts
from rembed_keras.tasks.kinds.examples import Question
from rembed_keras.tasks.kinds.windows import encode_questions

START = "start of an answer: give the character where it begins, from 0"


@keras.saving.register_keras_serializable(package="rembed_keras")
class SpanPreprocessor(TextPreprocessor):
    """`[CLS] question [SEP] passage [SEP]`, for `SpanExtractor`; a long passage has several overlapping rows.

    Args:
        tokenizer: a `Tokenizer`.
        sequence_length: S; by default as in `TextClassifierPreprocessor`.
        num_segments: as in `TextClassifierPreprocessor`.
        stride: pieces from the beginning of a window to that of the next.
        max_question_length: pieces; longer questions are truncated.
        name: the layer's name.

    Call arguments: a pair `(questions, passages)` of texts; `y`, a pair `(answers, starts)`: the answers as they stand
    in the passages, and where they start, in characters. Returns the inputs int32 [N, S], and with `y` the positions
    int32 [N, 2] of the first and last token of the answer; `sample_weight` of a question is that of all its rows.

    Raises:
        UserError: for an answer that is not at its start in the passage, or lengths that leave no room for a passage.

    >>> tokenizer = Tokenizer.train(["the encoder is kept and the head is dropped"] * 20, vocabulary_size=20)
    >>> preprocessor = SpanPreprocessor(tokenizer, sequence_length=32, max_question_length=12)
    >>> x, y = preprocessor((["is it kept"], ["the head is dropped"]), y=(["head"], [4]))
    >>> y.shape
    (1, 2)
    """

    settings = (*TextPreprocessor.settings, "stride", "max_question_length")
    shortest = 5  # [CLS], a piece of each, and [SEP] twice
    takes_pairs = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: Count | None = None,
        num_segments: Count = 2,
        stride: Count = 128,
        max_question_length: Count = 64,
        name: str | None = None,
    ):
        TextPreprocessor.__init__(self, tokenizer, sequence_length, num_segments, name)
        self.stride, self.max_question_length = stride, max_question_length

    def arrays(self, x, y, sample_weight):
        if not isinstance(x, tuple | list) or len(x) != 2 or not all(map(is_list, x)):
            raise UserError("questions and passages are a pair (questions, passages) of lists")
        columns: dict[str, list] = {"questions": as_texts(x[0]), "passages": as_texts(x[1])}
        if y is not None:
            if not isinstance(y, tuple | list) or len(y) != 2 or not all(map(is_list, y)):
                raise UserError("answers and where they start are a pair (answers, starts) of lists")
            columns |= {"answers": as_texts(y[0]), "starts": whole_numbers(y[1], START)}
        questions = [
            Question(str(i), question, passage, tuple(answer[:1]), tuple(answer[1:]))
            for i, (question, passage, *answer) in enumerate(rows_of(columns))
        ]
        lengths = (self.sequence_length, self.stride, min(self.max_question_length, self.sequence_length - 4))
        found = encode_questions(questions, self.tokenizer.model, *lengths, self.num_segments)
        weights = weights_of_rows(sample_weight, len(questions))
        return found.inputs, found.targets, None if weights is None else weights[found.rows]
