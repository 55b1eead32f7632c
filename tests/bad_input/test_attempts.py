"""An attempt that fails once has failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input import attempts


def test_what_fails_only_once_is_reported_as_it_failed(monkeypatch):
    codes = iter([0, 0, 1])
    monkeypatch.setattr(attempts, "_run", lambda _: (next(codes, 0), "", "said once"))

    @attempts.attempts(9)
    @given(st.integers())
    def claim(number):
        attempts.attempt(["inspect", f"{number}.gin"])

    with pytest.raises(AssertionError, match="exit code 1\n\nsaid once"):
        claim()
