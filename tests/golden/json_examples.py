"""Lists examples of op cases for record_json_cases.py, with the op, the inputs and the arguments."""

import torch

torch.manual_seed(0)


def R(*shape):
    """Returns normally distributed numbers."""
    return torch.randn(shape, dtype=torch.float64)


def P(*shape):
    """Returns numbers between 0.125 and 0.875."""
    return torch.rand(shape, dtype=torch.float64) * 0.75 + 0.125


def Z(low, high, *shape):
    """Returns integers from low to high - 1."""
    return torch.randint(low, high, shape)


def B(*shape):
    return torch.rand(shape) < 0.5


def K(x):
    """Marks an input as constant, so that no gradient is recorded."""
    x.constant = True
    return x


T = lambda x: x.transpose(0, 1)  # gives x another layout
nan, inf = float("nan"), float("inf")

EXAMPLES = [(op, [R(3, 5)], {}) for op in (
    "floor ceil round trunc frac sign sin cos tan atan sinh cosh asinh exp2 expm1 erf erfc square "
    "reciprocal logical_not isnan isinf isfinite selu logsigmoid mish hardswish hardsigmoid relu6 "
    "tanhshrink neg abs exp tanh sigmoid relu silu softsign gelu nan_to_num leaky_relu elu celu "
    "softplus hardtanh hardshrink softshrink contiguous clone sum mean var max min sort "
    "argsort zeros_like ones_like tril triu squeeze flatten").split()]
EXAMPLES += [(op, [P(3, 5)], {}) for op in (
    "asin acos atanh log2 log10 log1p erfinv lgamma digamma log sqrt rsqrt").split()]
EXAMPLES += [(op, [R(3, 5), R(5)], {}) for op in (
    "add sub mul div eq ne lt le gt ge maximum minimum floor_divide fmod remainder atan2 "
    "logical_and logical_or logical_xor fmax fmin copysign hypot logaddexp logaddexp2").split()]
EXAMPLES += [("signbit", [R(3, 5)], {}), ("sinc", [R(3, 5)], {}), ("xlogy", [R(3, 5), P(5)], {}),
             ("isclose", [R(3, 5), R(5)], {"rtol": 0.5, "atol": 0.1})]
EXAMPLES += [(op, [R(3, 5)], {"other": 0.5}) for op in "add sub mul div eq ne lt le gt ge".split()]
EXAMPLES += [(op, [Z(0, 9, 7), Z(0, 9, 7)], {}) for op in
             "bitwise_and bitwise_or bitwise_xor add mul".split()]
EXAMPLES += [
    ("acosh", [P(3, 5) + 1], {}),
    ("bitwise_not", [Z(0, 9, 7)], {}),
    ("sin", [T(R(3, 5))], {}),
    ("gelu", [R(7)], {"approximate": "tanh"}),
    ("nan_to_num", [torch.tensor([1, float("nan"), float("inf")])], {"nan": 2.0, "posinf": 3.0}),
    ("clamp", [R(3, 5)], {"min": -0.5, "max": 0.75}),
    ("add", [R(3, 5), R(5)], {"alpha": 2}),
    ("sub", [R(3, 5), R(5)], {"alpha": 2}),
    ("prelu", [R(2, 3, 4), R(3)], {}),
    ("pow", [P(3, 5), R(5)], {}),
    ("pow", [R(3, 5)], {"exponent": 3}),
    ("lerp", [R(3, 5), R(3, 5), R(5)], {}),
    ("lerp", [R(3, 5), R(3, 5)], {"weight": 0.25}),
    ("addcmul", [R(3, 5), R(3, 5), R(5)], {"value": 0.5}),
    ("addcdiv", [R(3, 5), R(3, 5), P(5)], {"value": 0.5}),
    ("addcmul", [Z(0, 9, 3), Z(0, 9, 3), Z(0, 9, 3)], {"value": 2}),
    ("where", [B(3, 5), R(3, 5), R(5)], {}),
    ("masked_fill", [R(3, 5), B(5)], {"value": -1.5}),
    ("leaky_relu", [R(7)], {"negative_slope": 0.2}),
    ("elu", [R(7)], {"alpha": 0.5}),
    ("celu", [R(7)], {"alpha": 0.5}),
    ("softplus", [R(7)], {"beta": 2, "threshold": 1}),
    ("hardtanh", [R(7)], {"min_val": -0.5, "max_val": 0.25}),
    ("hardshrink", [R(7)], {"lambd": 0.25}),
    ("softshrink", [R(7)], {"lambd": 0.25}),
    ("threshold", [R(7)], {"threshold": 0.25, "value": 3.0}),
    ("glu", [R(3, 4)], {"dim": 1}),
    ("softmax", [R(3, 5)], {"dim": 0}),
    ("log_softmax", [R(3, 5)], {"dim": 0}),
    ("view", [R(3, 4)], {"size": [2, 6]}),
    ("reshape", [R(3, 4)], {"shape": [2, -1]}),
    ("flatten", [R(2, 3, 4)], {"start_dim": 1}),
    ("transpose", [R(2, 3, 4)], {"dim0": 0, "dim1": 2}),
    ("permute", [R(2, 3, 4)], {"dims": [2, 0, 1]}),
    ("expand", [R(3, 1)], {"size": [2, 3, 4]}),
    ("squeeze", [R(1, 3, 1)], {"dim": 2}),
    ("unsqueeze", [R(3)], {"dim": 0}),
    ("narrow", [R(5, 2)], {"dim": 0, "start": 1, "length": 3}),
    ("select", [R(5, 2)], {"dim": 0, "index": -2}),
    ("split", [R(5, 2)], {"split_size_or_sections": 2}),
    ("split", [R(2, 5)], {"split_size_or_sections": [1, 4], "dim": 1}),
    ("chunk", [R(5, 2)], {"chunks": 2}),
    ("cat", [[R(2, 3), R(1, 3)]], {}),
    ("cat", [[R(2, 3), R(2, 1)]], {"dim": 1}),
    ("stack", [[R(2, 3), R(2, 3)]], {"dim": 1}),
    ("to", [R(3)], {"dtype": "float32"}),
    ("flip", [R(3, 4)], {"dims": [1]}),
    ("pad", [R(3, 4)], {"pad": [1, 2], "value": 0.5}),
    ("pad", [R(1, 3, 4)], {"pad": [1, 2], "mode": "reflect"}),
    ("zeros", [], {"size": [2, 3]}),
    ("ones", [], {"size": [2, 3], "dtype": "int64"}),
    ("full", [], {"size": [2], "fill_value": 3}),
    ("arange", [], {"end": 5}),
    ("arange", [], {"start": 0.5, "end": 3, "step": 0.75, "dtype": "float64"}),
    ("full_like", [R(3)], {"fill_value": 2.5}),
    ("tril", [R(3, 4)], {"diagonal": 1}),
    ("triu", [R(3, 4)], {"diagonal": -1}),
    ("one_hot", [Z(0, 4, 5)], {"num_classes": 4}),
    ("gather", [R(3, 4), Z(0, 4, 3, 2)], {"dim": 1}),
    ("index_select", [R(3, 4), Z(0, 3, 5)], {"dim": 0}),
    ("scatter_add", [R(3, 4), Z(0, 3, 2, 4), R(2, 4)], {"dim": 0}),
    ("embedding", [Z(0, 5, 2, 3), R(5, 4)], {"padding_idx": 1}),
    ("sum", [R(3, 4)], {"dim": 1, "keepdim": True}),
    ("mean", [R(3, 4, 2)], {"dim": [0, 2]}),
    ("var", [R(3, 4)], {"dim": 0, "correction": 0}),
    ("argmax", [R(3, 4)], {"dim": 1}),
    ("argmin", [R(3, 4)], {"dim": 0, "keepdim": True}),
    ("cumsum", [R(3, 4)], {"dim": 1}),
    ("cumprod", [R(3, 4)], {"dim": 0}),
    ("topk", [R(3, 5)], {"k": 2, "largest": False}),
    ("sort", [R(3, 5)], {"dim": 0, "descending": True}),
    ("matmul", [R(2, 3, 4), R(4, 5)], {}),
    ("linear", [R(2, 4), R(3, 4), R(3)], {}),
    ("linear", [R(2, 4), R(3, 4)], {}),
    ("conv2d", [R(1, 4, 5, 6), R(4, 2, 3, 2), R(4)],
     {"stride": [2, 1], "padding": 1, "groups": 2}),
    ("conv_transpose2d", [R(1, 2, 3, 3), R(2, 3, 2, 2), None],
     {"stride": 2, "output_padding": 1}),
    ("scaled_dot_product_attention", [R(1, 2, 3, 4), R(1, 2, 5, 4), R(1, 2, 5, 4), B(3, 5)], {}),
    ("scaled_dot_product_attention", [R(1, 2, 3, 4), R(1, 2, 3, 4), R(1, 2, 3, 4)],
     {"is_causal": True, "scale": 0.25}),
    ("layer_norm", [R(3, 5), R(5), R(5)], {"normalized_shape": [5]}),
    ("rms_norm", [R(3, 5), R(5)], {"normalized_shape": [5], "eps": 1e-3}),
    ("batch_norm", [R(4, 3), R(3), P(3), R(3), R(3)], {}),
    ("batch_norm", [R(4, 3), None, None], {"training": True}),
    ("group_norm", [R(2, 4, 3), R(4), R(4)], {"num_groups": 2}),
    ("instance_norm", [R(2, 3, 4)], {"eps": 1e-2}),
    ("local_response_norm", [R(2, 4, 3)], {"size": 3, "alpha": 0.5}),
    ("max_pool2d", [R(1, 2, 5, 5)], {"kernel_size": 2, "stride": 1}),
    ("avg_pool2d", [R(1, 2, 5, 5)],
     {"kernel_size": [3, 2], "padding": 1, "count_include_pad": False}),
    ("adaptive_avg_pool2d", [R(1, 2, 5, 5)], {"output_size": [2, 3]}),
    ("adaptive_max_pool2d", [R(1, 2, 5, 5)], {"output_size": 2}),
    ("interpolate", [R(1, 2, 3, 4)],
     {"size": [5, 7], "mode": "bilinear", "align_corners": True}),
    ("interpolate", [R(1, 2, 3, 4)], {"scale_factor": 2}),
    ("mse_loss", [R(3, 4), R(3, 4)], {"reduction": "sum"}),
    ("cross_entropy", [R(4, 5), Z(0, 5, 4)], {"label_smoothing": 0.1}),
    ("binary_cross_entropy", [P(3, 4), P(3, 4)], {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", [R(3, 4), P(3, 4), R(4), P(4)], {}),
]

# Other names, numbers as operands, and options of elementwise ops.
EXAMPLES += [(op, [R(3, 5)], {}) for op in
             "absolute arcsinh arctan fix negative expit positive softmin".split()]
EXAMPLES += [(op, [P(3, 5)], {}) for op in "arccos arcsin arctanh gammaln psi".split()]
EXAMPLES += [(op, [R(3, 5), R(5)], {}) for op in
             "multiply divide true_divide subtract greater greater_equal less less_equal not_equal "
             "arctan2 rsub max min".split()]
EXAMPLES += [(op, [R(3, 5)], {"other": 0.5}) for op in "floor_divide fmod remainder rsub".split()]
EXAMPLES += [(op, [Z(-9, 9, 7)], {"other": 3}) for op in
             "add sub mul div floor_divide fmod remainder rsub bitwise_and bitwise_or bitwise_xor "
             "eq maximum".split() if op != "maximum"]
EXAMPLES += [
    ("arccosh", [P(3, 5) + 1], {}),
    ("add", [Z(0, 9, 7)], {"other": 3, "alpha": 2}),
    ("add", [B(3, 5), B(5)], {}),
    ("sub", [Z(0, 9, 7)], {"other": 0.5}),
    ("rsub", [R(3, 5), R(5)], {"alpha": 2}),
    ("remainder", [K(P(3, 5))], {"self": 3}),
    ("pow", [R(3, 5)], {"self": 2}),
    ("pow", [Z(0, 5, 4)], {"exponent": 2}),
    ("div", [R(3, 5), P(5)], {"rounding_mode": "floor"}),
    ("div", [R(3, 5), P(5)], {"rounding_mode": "trunc"}),
    ("div", [Z(-9, 9, 7)], {"other": 4, "rounding_mode": "trunc"}),
    ("div", [Z(-9, 9, 7), Z(1, 5, 7)], {"rounding_mode": "floor"}),
    ("round", [R(7) * 100], {"decimals": 2}),
    ("round", [R(7) * 100], {"decimals": -1}),
    ("clamp", [R(3, 5), P(5) - 1, P(5)], {}),
    ("clamp", [R(3, 5), None, P(3, 5)], {}),
    ("clip", [R(7)], {"max": 0.25}),
    ("clamp_min", [R(7)], {"min": 0.25}),
    ("clamp_min", [R(7), R(7)], {}),
    ("clamp_max", [R(7)], {"max": 0.25}),
    ("relu", [R(7)], {"inplace": False}),
    ("softmax", [R(3, 5).float()], {"dim": 1, "dtype": "float64"}),
    ("softmax", [R(3, 4, 2)], {}),
    ("log_softmax", [R(3, 5)], {"dim": -1, "dtype": "float32"}),
    ("softmin", [R(3, 5)], {"dim": 1}),
]

# Creation and conversion.
EXAMPLES += [(op, [R(3, 5)], {}) for op in
             "double float half bfloat16 long int bool detach".split()]
EXAMPLES += [
    ("byte", [P(3, 5) * 9], {}),
    ("full", [], {"size": [2, 2], "fill_value": 2.5, "dtype": "float64"}),
    ("full", [], {"size": [2], "fill_value": True}),
    ("scalar_tensor", [], {"s": 3}),
    ("zeros_like", [R(3)], {"dtype": "int64"}),
    ("ones_like", [Z(0, 3, 4)], {}),
    ("full_like", [R(3)], {"fill_value": 2, "dtype": "int32"}),
    ("new_zeros", [R(3)], {"size": [2, 2]}),
    ("new_ones", [R(3)], {"size": [2], "dtype": "bool"}),
    ("new_full", [Z(0, 3, 4)], {"size": [2], "fill_value": 3}),
    ("eye", [], {"n": 3}),
    ("eye", [], {"n": 2, "m": 4, "dtype": "int64"}),
    ("linspace", [], {"start": -1, "end": 2.5, "steps": 6}),
    ("linspace", [], {"start": 3, "end": 10, "steps": 5, "dtype": "float64"}),
    ("logspace", [], {"start": 0, "end": 2, "steps": 5}),
    ("logspace", [], {"start": 0, "end": 3, "steps": 4, "base": 2, "dtype": "float64"}),
    ("arange", [], {"start": 2, "end": 11, "step": 3}),
    ("meshgrid", [[R(3), R(2)]], {"indexing": "ij"}),
    ("meshgrid", [[R(3), R(2), R(4)]], {"indexing": "xy"}),
    ("cartesian_prod", [[R(3), R(2)]], {}),
    ("combinations", [R(4)], {}),
    ("combinations", [R(3)], {"r": 2, "with_replacement": True}),
    ("tril_indices", [], {"row": 3, "col": 4}),
    ("triu_indices", [], {"row": 3, "col": 4, "offset": -1, "dtype": "int32"}),
    ("to", [R(3), R(2).half()], {}),
    ("type", [R(3)], {"dtype": "float32"}),
    ("type_as", [R(3), R(2).float()], {}),
    ("dropout", [R(3, 5)], {"p": 0}),
    ("dropout", [R(3, 5)], {"p": 0.5, "training": False}),
    ("dropout", [R(3, 5)], {"p": 1.0}),
]

# Shapes.
EXAMPLES += [(op, [R(3, 4)], {}) for op in "t adjoint ravel fliplr flipud diag diagonal diagflat "
             "diag_embed trace atleast_1d atleast_3d".split()]
EXAMPLES += [(op, [[R(3, 4), R(3, 4)]], {}) for op in
             "hstack vstack row_stack dstack column_stack concat concatenate".split()]
EXAMPLES += [
    ("hstack", [[R(3), R(2)]], {}),
    ("column_stack", [[R(3), R(3, 2)]], {}),
    ("flatten", [R(2, 3, 4)], {"start_dim": 0, "end_dim": 1}),
    ("unflatten", [R(2, 6)], {"dim": 1, "sizes": [3, -1]}),
    ("swapdims", [R(2, 3, 4)], {"dim0": 0, "dim1": -1}),
    ("swapaxes", [R(2, 3, 4)], {"axis0": 0, "axis1": 1}),
    ("movedim", [R(2, 3, 4)], {"source": 0, "destination": 2}),
    ("moveaxis", [R(2, 3, 4)], {"source": [0, 1], "destination": [1, -1]}),
    ("broadcast_to", [R(3, 1)], {"size": [2, 3, 4]}),
    ("broadcast_tensors", [[R(3, 1), R(4)]], {}),
    ("view_as", [R(3, 4), R(2, 6)], {}),
    ("reshape_as", [R(3, 4), R(2, 6)], {}),
    ("expand_as", [R(3, 1), R(2, 3, 4)], {}),
    ("sum_to_size", [R(2, 3, 4)], {"size": [3, 1]}),
    ("squeeze", [R(1, 3, 1, 1)], {"dim": [0, 2]}),
    ("slice", [R(5, 6)], {"dim": 1, "start": 1, "end": -1, "step": 2}),
    ("slice", [R(5, 2)], {"start": 2}),
    ("diagonal", [R(3, 4, 5)], {"offset": 1, "dim1": 0, "dim2": 2}),
    ("linalg.diagonal", [R(2, 3, 4)], {"offset": -1}),
    ("diag", [R(3)], {"diagonal": 1}),
    ("diag_embed", [R(2, 3)], {"offset": 1, "dim1": 0, "dim2": 2}),
    ("diagflat", [R(3)], {"offset": -1}),
    ("block_diag", [[R(2, 3), R(1, 2), R(3)]], {}),
    ("split", [R(5, 2)], {"split_size_or_sections": [5]}),
    ("split_with_sizes", [R(5, 2)], {"split_sizes": [2, 3]}),
    ("chunk", [R(2, 7)], {"chunks": 3, "dim": 1}),
    ("unbind", [R(3, 2)], {"dim": 1}),
    ("tensor_split", [R(7, 2)], {"indices_or_sections": 3}),
    ("tensor_split", [R(2, 7)], {"indices_or_sections": [2, 5], "dim": 1}),
    ("hsplit", [R(2, 4)], {"indices_or_sections": 2}),
    ("vsplit", [R(4, 2)], {"indices_or_sections": [1, 3]}),
    ("dsplit", [R(2, 3, 4)], {"indices_or_sections": 2}),
    ("atleast_2d", [[R(3), R(2, 2)]], {}),
    ("Tensor.unfold", [R(7, 2)], {"dimension": 0, "size": 3, "step": 2}),
    ("F.unfold", [R(1, 2, 5, 4)],
     {"kernel_size": [3, 2], "dilation": 1, "padding": 1, "stride": 2}),
    ("fold", [R(1, 8, 9)], {"output_size": [4, 4], "kernel_size": 2}),
    ("pad", [R(2, 3, 4)], {"pad": [1, 2], "mode": "replicate"}),
    ("pad", [R(1, 2, 3, 4)], {"pad": [1, 2, 2, 0], "mode": "circular"}),
    ("pad", [R(3, 4)], {"pad": [-1, 1, 1, 0]}),
    ("constant_pad_nd", [R(3, 4)], {"pad": [1, 0], "value": 2}),
    ("pixel_shuffle", [R(1, 8, 2, 3)], {"upscale_factor": 2}),
    ("pixel_unshuffle", [R(1, 2, 4, 6)], {"downscale_factor": 2}),
    ("channel_shuffle", [R(1, 4, 2, 2)], {"groups": 2}),
    ("roll", [R(3, 4)], {"shifts": 2}),
    ("roll", [R(3, 4)], {"shifts": [1, -1], "dims": [0, 1]}),
    ("rot90", [R(3, 4)], {}),
    ("rot90", [R(3, 4)], {"k": -1, "dims": [1, 0]}),
    ("repeat", [R(3, 2)], {"repeats": [2, 1, 2]}),
    ("tile", [R(3, 2)], {"dims": [2]}),
    ("repeat_interleave", [R(3, 2)], {"repeats": 2}),
    ("repeat_interleave", [R(3, 2), Z(0, 3, 3)], {"dim": 0}),
    ("repeat_interleave", [Z(0, 3, 5)], {}),
    ("sum", [R(3, 4)], {"axis": 0, "keepdims": True}),
]

# Masks and indices.
EXAMPLES += [
    ("nonzero", [Z(0, 2, 3, 4)], {}),
    ("nonzero", [Z(0, 2, 3, 4)], {"as_tuple": True}),
    ("argwhere", [Z(0, 2, 3, 4)], {}),
    ("masked_select", [R(3, 5), B(5)], {}),
    ("masked_scatter", [R(3, 4), B(3, 4), R(12)], {}),
    ("masked_fill", [R(3, 5), B(3, 5), R()], {}),
    ("fill", [R(3, 5)], {"value": 2}),
    ("where", [B(3, 5), R(3, 5)], {"other": 0.5}),
    ("where", [B(3, 5), R(3, 5)], {"input": 2}),
    ("where", [B(3, 5)], {"input": 1, "other": 0}),
    ("where", [B(3, 5)], {}),
    ("isin", [Z(0, 9, 3, 4), Z(0, 9, 4)], {}),
    ("isin", [Z(0, 9, 7)], {"test_element": 3, "invert": True}),
    ("index", [R(3, 4, 5)], {"index": [1, "...", "::2"]}),
    ("index", [R(3, 4)], {"index": [None, "1:", -1]}),
    ("index", [R(3, 4, 5), [Z(0, 3, 2), None, Z(0, 5, 2)]], {}),
    ("index", [R(3, 4), [B(3, 4)]], {}),
    ("__getitem__", [R(3, 4), [Z(0, 3, 6)]], {"index": ["tensor", "1:3"]}),
    ("index_put", [R(5, 2), [torch.tensor([0, 3])], R(2, 2)], {}),
    ("index_put", [R(3, 4), [Z(0, 3, 6), Z(0, 4, 6)], R(6)], {"accumulate": True}),
    ("gather", [R(3, 4), Z(0, 3, 2, 4)], {"dim": 0, "sparse_grad": False}),
    ("scatter", [R(3, 4), torch.tensor([[0, 1, 2, 0]]), R(1, 4)], {"dim": 0}),
    ("scatter", [R(3, 4), Z(0, 4, 3, 2)], {"dim": 1, "value": 2.5}),
    ("scatter", [Z(0, 9, 3, 4), Z(0, 3, 2, 4), Z(0, 9, 2, 4)], {"dim": 0, "reduce": "multiply"}),
    ("scatter_", [K(R(3, 4)), Z(0, 4, 3, 2)], {"dim": 1, "value": 1}),
    ("scatter_reduce", [R(3, 4), Z(0, 3, 5, 4), R(5, 4)],
     {"dim": 0, "reduce": "mean", "include_self": False}),
] + [("scatter_reduce", [R(3, 4), Z(0, 3, 5, 4), R(5, 4)], {"dim": 0, "reduce": reduce})
     for reduce in ("sum", "prod", "mean", "amax", "amin")] + [
    ("take", [R(3, 4), Z(-12, 12, 2, 3)], {}),
    ("put", [R(3, 4), torch.tensor([[0, 5, -1]]), R(3)], {}),
    ("put", [R(3, 4), Z(0, 12, 7), R(7)], {"accumulate": True}),
    ("take_along_dim", [R(3, 4), Z(0, 3, 2, 1)], {"dim": 0}),
    ("take_along_dim", [R(3, 4), Z(0, 12, 5)], {}),
    ("one_hot", [Z(0, 4, 5)], {}),
    ("embedding", [Z(0, 5, 2, 3), R(5, 4)], {"max_norm": None, "scale_grad_by_freq": False}),
    ("index_add", [R(3, 4), Z(0, 3, 5), R(5, 4)], {"dim": 0, "alpha": 2}),
    ("index_copy", [R(3, 4), torch.tensor([2, 0]), R(3, 2)], {"dim": 1}),
    ("index_fill", [R(3, 4), torch.tensor([2, 0])], {"dim": 1, "value": 1.5}),
    ("index_fill", [R(3, 4), torch.tensor([2, 0]), R()], {"dim": 0}),
    ("index_fill", [R(3, 4), torch.tensor([2, 0, 2]), R()], {"dim": 1}),
    ("select_scatter", [R(3, 4), R(3)], {"dim": 1, "index": -1}),
    ("slice_scatter", [R(5, 2), R(2, 2)], {"start": 1, "end": 5, "step": 2}),
    ("slice_scatter", [R(2, 5), R(2, 3)], {"dim": 1, "start": 2}),
    ("diagonal_scatter", [R(3, 4), R(3)], {"offset": 1}),
] + [("index_reduce", [R(3, 4), Z(0, 3, 5), R(5, 4)], {"dim": 0, "reduce": reduce})
     for reduce in ("prod", "mean", "amax", "amin")] + [
    ("index_reduce", [R(3, 4), torch.tensor([0, 2, 0]), R(3, 4)],
     {"dim": 0, "reduce": "prod", "include_self": False}),
]

# Examples that are recorded last. They do not change the random numbers of the other examples.
before = torch.get_rng_state()
LAST = [(op, [P(3, 5)], {"self": 0.5}) for op in "add sub mul div".split()] + [
    ("div", [P(3, 5)], {"self": 5, "rounding_mode": "floor"}),
    # The rounded quotients are 250 and -250.
    ("remainder", [torch.tensor([0.25, -0.25], dtype=torch.float64),
                   torch.tensor([0.001, 0.001], dtype=torch.float64)], {}),
    ("linspace", [], {"start": 4.3, "end": 1.2, "steps": 9, "dtype": "uint8"}),
]
torch.set_rng_state(before)
