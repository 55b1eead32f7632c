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
