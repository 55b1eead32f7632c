"""Questions whose answers are marked as their task scores them, and those that are not read whole."""

from rembed_keras.tasks import QuestionAnswering
from rembed_keras.tasks.kinds.examples import Question, Splits
from rembed_keras.tasks.kinds.windows import encode_questions


def test_an_answer_is_right_after_the_normalization_of_its_task_and_language():
    question = Question("1", "Was?", "Das ist der Mond .", ("Mond",), (12,))
    for normalization, language, right in (("mlqa", "de", 1.0), ("mlqa", "en", 0.0), ("squad", "de", 0.0)):
        task = QuestionAnswering("t", Splits([question], {}, {language: [question]}), normalization)
        (row,) = task.predictions([question], ["der Mond"], language)
        assert row["correct"] == right == task.score([question], ["der Mond"], language)["exact_match"]


def test_what_is_not_read_whole_is_counted_by_what_it_is(corpus):
    long, short = "save the file and open the window " * 4, "save"
    questions = [
        Question("0", short, long, (long.strip(),), (0,)),
        Question("1", short, long, ("save",), (0,)),
        Question("2", long, long, ("save",), (0,)),
    ]
    encoded = encode_questions(questions, corpus.tokenizer, 16, stride=4, max_question_length=4)
    assert encoded.shortfalls() == {
        "have a question that is cut": 1,
        "have an answer that no window of 16 tokens has whole": 1,
    }
