import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.training.optimizers.galore import GaLore

RATE, RANK, GAP, SCALE, STEPS = 0.05, 2, 3, 0.25, 8


class Projector:
    """`GaLoreProjector` of galore-torch with proj_type "std", in NumPy; signs as `GaLore` says."""

    def __init__(self):
        self.ortho_matrix = None

    def project(self, gradient, step):
        is_tall = gradient.shape[0] >= gradient.shape[1]
        if self.ortho_matrix is None or step % GAP == 0:
            left, _, right = np.linalg.svd(gradient, full_matrices=False)
            self.ortho_matrix = signed(right[:RANK]) if is_tall else signed(left[:, :RANK].T).T
        return gradient @ self.ortho_matrix.T if is_tall else self.ortho_matrix.T @ gradient

    def project_back(self, low):
        is_tall = low.shape[0] >= low.shape[1]
        return (low @ self.ortho_matrix if is_tall else self.ortho_matrix @ low) * SCALE


def signed(rows):
    return np.stack([row * np.sign(row[np.abs(row).argmax()]) for row in rows])


def galore_torch(value, gradients, is_projected):
    """The `AdamW` of galore-torch on one parameter, without weight decay, in float64."""
    projector, first, second = Projector(), 0.0, 0.0
    for step, full in enumerate(gradients):
        gradient = projector.project(full, step) if is_projected else full
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step_size = RATE * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        update = first / (np.sqrt(second) + 1e-6)
        value = value - step_size * (projector.project_back(update) if is_projected else update)
        yield value


CASES = {
    "tall": ((7, 5), "kernel", (7, 5)),
    "wide": ((4, 9), "kernel", (4, 9)),
    "heads in": ((6, 2, 3), "kernel", (6, 6)),
    "heads out": ((2, 3, 6), "kernel", (6, 6)),
    "of full rank": ((9, 2), "kernel", None),
    "a vector": ((5,), "kernel", None),
    "a bias with heads": ((4, 3), "bias", None),
}


@pytest.mark.parametrize("case", CASES)
def test_each_step_is_galore_torchs(case):
    shape, name, matrix = CASES[case]
    rng = np.random.default_rng(0)
    value, gradients = rng.normal(size=shape), rng.normal(size=(STEPS, *shape))
    variable = keras.Variable(value.astype("float32"), name=name)
    optimizer = GaLore(RATE, rank=RANK, update_proj_gap=GAP, scale=SCALE, weight_decay=0.0)
    optimizer.build([variable])
    as_matrix = matrix or shape
    reference = galore_torch(
        value.reshape(as_matrix), [each.reshape(as_matrix) for each in gradients], is_projected=matrix is not None
    )
    for gradient, expected in zip(gradients, reference, strict=True):
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")])
        found = keras.ops.convert_to_numpy(variable.value)
        np.testing.assert_allclose(found.reshape(as_matrix), expected, atol=2e-5)
    state = sum(int(np.prod(each.shape)) for each in optimizer.variables if len(each.shape))
    small, large = sorted(as_matrix)[0], sorted(as_matrix)[-1]
    assert state == (RANK * (small + 2 * large) if matrix else 2 * value.size)


def test_a_rank_is_a_number():
    with pytest.raises(UserError, match=r"GaLore\.rank is 0; it must be a positive whole number"):
        GaLore(rank=0)
