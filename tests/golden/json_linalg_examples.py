"""Lists examples of linear algebra for record_json_cases.py."""

import torch

from json_examples import K, R, inf

# These examples do not change the random numbers of the other examples.
before = torch.get_rng_state()
torch.manual_seed(1)


def S(n):
    """Returns a symmetric positive-definite matrix."""
    x = R(n, n)
    return x @ x.mT + torch.eye(n, dtype=torch.float64)


def L(n):
    """Returns the lower Cholesky factor of a matrix."""
    return torch.linalg.cholesky(S(n))


EXAMPLES = [(op, [R(3, 3)], {}) for op in
            "inv inverse det slogdet linalg.det svdvals matrix_exp linalg.qr pinv pinverse linalg.vander "
            "matrix_norm linalg.cond".split()]
EXAMPLES += [
    ("linalg.cholesky", [S(3)], {}),
    ("linalg.cholesky", [S(3)], {"upper": True}),
    ("cholesky_inverse", [K(L(3))], {}),
    ("cholesky_solve", [R(3, 2), K(L(3))], {}),
    ("logdet", [S(3)], {}),
    ("linalg.solve", [R(2, 3, 3), R(2, 3, 2)], {}),
    ("linalg.solve", [R(3, 3), R(2, 3)], {"left": False}),
    ("solve_triangular", [R(3, 3), R(3, 2)], {"upper": True, "unitriangular": True}),
    ("triangular_solve", [R(3, 2), K(R(3, 3))], {"upper": False, "transpose": True}),
    ("linalg.lstsq", [R(4, 3), R(4, 2)], {}),
    ("linalg.lstsq", [R(4, 3), R(4)], {"driver": "gelsd"}),
    ("tensorinv", [R(4, 2, 2)], {"ind": 1}),
    ("tensorsolve", [R(2, 2, 4), R(2, 2)], {}),
    ("linalg.qr", [R(3, 4)], {"mode": "complete"}),
    ("linalg.qr", [K(R(4, 3))], {"mode": "r"}),
    ("geqrf", [K(R(4, 3))], {}),
    ("householder_product", [R(4, 3), R(3)], {}),
    ("eigvalsh", [S(3)], {"UPLO": "U"}),
    ("pinv", [R(4, 3)], {"rtol": 1e-3}),
    ("pinv", [S(3)], {"atol": 1e-3, "hermitian": True}),
    ("linalg.matrix_rank", [K(R(4, 3))], {}),
    ("matrix_norm", [R(2, 3, 4)], {"ord": "nuc", "dim": [0, 2], "keepdim": True}),
    ("matrix_norm", [R(3, 4)], {"ord": -2}),
    ("matrix_norm", [R(3, 4)], {"ord": inf}),
    ("linalg.norm", [R(3, 4)], {"ord": "nuc"}),
    ("linalg.norm", [R(3, 4)], {"ord": 2}),
    ("linalg.cond", [K(R(3, 3))], {"p": "fro"}),
    ("linalg.cond", [R(3, 4)], {"p": -2}),
    ("linalg.vander", [R(3)], {"N": 4}),
    ("matrix_power", [R(3, 3)], {"n": -2}),
]
torch.set_rng_state(before)
