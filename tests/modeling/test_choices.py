"""Kinds of parts, given as objects, classes and words, and what is none."""

import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import couplings
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.blocks.stack import attention_of, block_of
from rembed_keras.modeling.couplings.naming import COUPLINGS


class Scaled(PostNorm):
    """A kind that cannot be made without an argument."""

    def __init__(self, factor):
        self.factor = factor


class Attending:
    """A kind of something else, with a configuration."""

    def get_config(self):
        return {}


def test_a_class_that_needs_arguments_is_to_be_given_as_an_object():
    with pytest.raises(UserError, match="block is Scaled, which needs arguments: give an object of it"):
        block_of({"block": Scaled})
    assert block_of({"block": Scaled(2)}).factor == 2


@pytest.mark.parametrize("given", [Attending, Attending(), PreNorm, couplings.Coupled()])
def test_what_has_not_all_that_a_kind_must_have_is_refused_by_name(given):
    with pytest.raises(UserError, match=r"attention is (Attending|PreNorm|Coupled), which has no attend"):
        attention_of({"attention": [given], "num_layers": 2})


def test_a_word_that_is_misspelt_is_met_with_the_nearest():
    assert COUPLINGS.told(COUPLINGS.kind("extended")) == "extended"
    with pytest.raises(UserError, match="decoupled, coupled, extended, gdes; did you mean coupled"):
        COUPLINGS.kind("couple")
