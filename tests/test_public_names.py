import subprocess
import sys

import rembed_keras
from rembed_keras import modeling


def test_every_public_name_is_there():
    assert set(rembed_keras.__all__) <= set(dir(rembed_keras))
    assert rembed_keras.Encoder is modeling.Encoder
    for name in rembed_keras.__all__:
        assert getattr(rembed_keras, name).__name__ == name


def test_the_package_itself_loads_no_framework():
    code = "import sys, rembed_keras; print([m for m in ('tensorflow', 'keras', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_modeling_loads_without_tensorflow():
    code = (
        "import sys; sys.modules['tensorflow'] = None; import rembed_keras.modeling as m; import numpy as np;"
        "e = m.Encoder(9, 1, 1, 4, 4, 2); ids = np.ones((1, 3), 'int32');"
        "print(e({'token_ids': ids, 'segment_ids': 0 * ids, 'padding_mask': ids})['pooled_output'].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={"KERAS_BACKEND": "jax"}
    )
    assert done.stdout == "(1, 4)\n", done.stderr
