"""Safetensors files are written a matrix at a time, and nothing of those before stays in memory."""

import ctypes
import json

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interop.tensors import Tensors, write_tensors
from tests.test_memory import memory

trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


class Matrix:
    """One that is copied to be written, as kernels are; beside the copy something small is made that stays."""

    shape, dtype = (1024, 2048), np.dtype("float32")

    def __init__(self, held):
        self.held = held

    def pieces(self):
        made = np.ones(self.shape, self.dtype)
        self.held.append(bytearray(100_000))
        yield made


@pytest.mark.any_backend
@pytest.mark.skipif(trim is None, reason="of glibc's allocator")
def test_copies_that_were_written_go_back_to_the_system(tmp_path):
    held = []
    write_tensors({str(i): Matrix(held) for i in range(2)}, tmp_path / "first")  # after which it keeps what is freed
    trim(0)
    before = memory("VmRSS")
    write_tensors({str(i): Matrix(held) for i in range(4)}, tmp_path / "second")
    assert memory("VmRSS") - before < 6e6  # a copy has 8 MB
    assert np.asarray(Tensors(tmp_path / "second")["3"]).all()


@pytest.mark.any_backend
def test_numbers_of_8_bits_are_refused_in_a_sentence(tmp_path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "it").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UserError, match="a has numbers of type F8_E4M3, which NumPy lacks"):
        Tensors(tmp_path / "it")["a"]
