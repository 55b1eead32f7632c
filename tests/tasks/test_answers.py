import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras import config
from rembed_keras.errors import UserError
from rembed_keras.tasks import QuestionAnswering
from rembed_keras.tasks.answers import (
    MLQA_ARTICLES,
    exact_match,
    mlqa_normalize,
    mlqa_scores,
    squad_normalize,
    squad_scores,
    token_f1,
)
from rembed_keras.tasks.kinds.examples import Question, Splits

TEXTS = st.lists(
    st.sampled_from(["the", "a", "An", "cat", "sat", "theory", "42", "tür", "猫", "-", "'", "_", "!", " ", "  ", "\t"])
).map("".join)


def words_from_scratch(text):
    """Words of a lower-case text without ASCII punctuation, none of them an article."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in text.split() if word not in ("a", "an", "the")]


def f1_from_scratch(given_words, right_words):
    left, shared = list(right_words), 0
    for word in given_words:
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(given_words), shared / len(right_words)
    return 2 * precision * recall / (precision + recall)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
@settings(deadline=None)
def test_squad_scores_are_those_of_words(answer, references):
    words = words_from_scratch(answer)
    assert squad_normalize(answer) == " ".join(words)
    assert token_f1(answer, references) == pytest.approx(
        max(f1_from_scratch(words, words_from_scratch(reference)) for reference in references)
    )
    assert exact_match(answer, references) == any(words == words_from_scratch(text) for text in references)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Norman  Conquest.", "norman conquest"),
        ("A.B.C.", "abc"),  # punctuation is removed before articles
        ("a-the an", "athe"),
        ("theatre and an area", "theatre and area"),
        ("«Ça va»", "«ça va»"),  # ASCII's punctuation alone
        ("ÉTÉ", "été"),
        ("在1889年。", "在1889年。"),  # XQuAD in Chinese: one word, stop and all
        ("the", ""),
    ],
)
def test_squad_normalization_by_hand(text, normal):
    assert squad_normalize(text) == normal


def test_f1_by_hand():
    # 2 words shared of 3 predicted and 4 of the reference: precision 2/3, recall 1/2, F1 4/7
    assert token_f1("Denver Broncos team", ["the Broncos of Denver Colorado"]) == pytest.approx(4 / 7)
    # a word counts as often as both have it: 1 of 3 and 1 of 1
    assert token_f1("no no no", ["no"]) == 0.5
    # of several references the best, for EM and for F1 each
    assert token_f1("Saint Bernadette", ["Bernadette", "Saint Bernadette Soubirous"]) == pytest.approx(0.8)
    assert exact_match("Saint Bernadette", ["Bernadette", "saint  bernadette!"]) == 1.0


def test_empty_answers():
    assert exact_match("", ["Moon"]) == token_f1("", ["Moon"]) == 0.0
    # both are empty after normalization: SQuAD 1.1 gives an exact match and no shared word
    assert exact_match("", ["the"]) == 1.0
    assert token_f1("", ["the"]) == 0.0


def test_means_are_over_questions():
    predictions = ["Moon", "", "red planet Mars"]
    references = [["the moon"], ["Venus"], ["Mars", "planet Mars"]]
    # EM 1, 0, 0; F1 1, 0, and 2 of 3 and 2 of 2: 4/5
    assert squad_scores(predictions, references) == pytest.approx({"exact_match": 1 / 3, "f1": 1.8 / 3})


def test_an_entity_of_record_may_occur_more_than_once():
    once = squad_scores(["Barack Obama"], [["Obama", "Barack Obama"]])
    assert squad_scores(["Barack Obama"], [["Obama", "Obama", "Barack Obama", "Obama"]]) == once
    assert once == {"exact_match": 1.0, "f1": 1.0}
    # F1 2/3 with "Obama", 0 with the other
    assert squad_scores(["President Obama"], [["Obama", "Obama", "Biden"]]) == pytest.approx(
        {"exact_match": 0.0, "f1": 2 / 3}
    )


@pytest.mark.parametrize(
    ("language", "text", "normal"),
    [
        ("en", "The “Eiffel Tower”—a sight", "eiffel towera sight"),
        ("es", "¿Los ríos de la Plata?", "ríos de plata"),
        ("es", "unas 3 islas", "3 islas"),
        ("de", "Der Übergang des Flusses, einer von vielen", "übergang flusses von vielen"),
        ("de", "Deren", "deren"),
        ("vi", "Những chiếc thuyền của họ là đẹp", "thuyền họ đẹp"),
        ("hi", "नई दिल्ली।", "नई दिल्ली"),  # vowel signs and the virama are kept, the danda is removed
        ("hi", "वह  \u0964 क्या?", "वह क्या"),
        ("ar", "الكتاب", "كتاب"),
        ("ar", "طالب، الجامعة؟", "ط ب جامعة"),  # the two letters are removed inside a word too
        ("ar", "قالَ", "ق َ"),
        ("zh", "“北京”大学。", "北 京 大 学"),
        ("zh", "iPhone 4s手机", "iphone 4s 手 机"),
        ("zh", "1.5 亿", "15 亿"),
        ("zh", "", ""),
        ("en", "a+b=c^2 $5", "abc2 5"),  # symbols of ASCII are removed, as they are in string.punctuation
        ("en", "5 € ± 2", "5 € ± 2"),  # others are kept
    ],
)
def test_mlqa_normalization_by_hand(language, text, normal):
    assert mlqa_normalize(text, language) == normal


@given(st.text("中文 \n\u3000aB1。，x龥龦\u0301", max_size=12))
@settings(deadline=None)
def test_chinese_is_cut_into_ideographs_letter_by_letter(text):
    words = [""]
    for letter in text.lower():
        if letter in "。，":
            continue
        if "\u4e00" <= letter <= "\u9fa5":
            words += [letter, ""]
        elif letter.isspace():
            words.append("")
        else:
            words[-1] += letter
    assert mlqa_normalize(text, "zh") == " ".join(word for word in words if word)


@given(st.text("ال بت\n", max_size=12))
@settings(deadline=None)
def test_the_arabic_article_goes_wherever_mlqas_pattern_finds_it(text):
    expected = " ".join(re.sub("\\sال^|ال", " ", text).split())
    assert mlqa_normalize(text, "ar") == expected


@given(TEXTS)
@settings(deadline=None)
def test_mlqas_english_is_squads_where_all_punctuation_is_ascii(text):
    assert mlqa_normalize(text, "en") == squad_normalize(text)


def test_a_chinese_answer_has_words_with_mlqa_and_one_with_xquad():
    given_answer, right = ["一八八九年"], [["一八八九"]]
    assert squad_scores(given_answer, right) == {"exact_match": 0.0, "f1": 0.0}
    # 4 of 5 and 4 of 4
    assert mlqa_scores(given_answer, right, "zh") == pytest.approx({"exact_match": 0.0, "f1": 8 / 9})


def test_the_language_decides_on_articles():
    spanish = mlqa_scores(["la luna"], [["luna"]], "es")
    assert spanish == {"exact_match": 1.0, "f1": 1.0}
    # "la" is a word to German: 1 of 2 and 1 of 1
    assert mlqa_scores(["la luna"], [["luna"]], "de") == pytest.approx({"exact_match": 0.0, "f1": 2 / 3})


def test_mlqa_has_seven_languages():
    assert set(MLQA_ARTICLES) == {"ar", "de", "en", "es", "hi", "vi", "zh"}
    with pytest.raises(UserError, match=r"MLQA has no language 'ZH'.*; did you mean zh\?"):
        mlqa_normalize("x", "ZH")


def test_a_task_that_mlqa_cannot_normalize_is_refused_before_it_is_learnt():
    asked = [Question("0", "Where?", "in Seoul", ("Seoul",), (3,))]
    splits = Splits(asked, {}, {"en": asked, "ko": asked})
    QuestionAnswering("squad", splits)
    with pytest.raises(UserError, match="MLQA has no language 'ko', but ar, de, en"):
        QuestionAnswering("mlqa", splits, normalization="mlqa")


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="there are 1 predictions for 2 questions"):
        squad_scores(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="there are 0 predictions for 0 questions"):
        squad_scores([], [])
    with pytest.raises(ValueError, match="without a right answer"):
        squad_scores(["a"], [[]])


@pytest.mark.parametrize("length", ["stride", "max_answer_length"])
def test_a_length_that_allows_no_answer_is_refused_before_anything_is_trained(length):
    with pytest.raises(UserError, match=f"^task squad: {length} is 0; it must be a positive whole number$"):
        QuestionAnswering("squad", None, **{length: 0})
    with pytest.raises(UserError, match=f"QuestionAnswering.{length} is 0; it must be a positive whole number$"):
        config.load("recipes/finetune/xtreme/xquad.gin", [f"tasks.QuestionAnswering.{length}=0"])
