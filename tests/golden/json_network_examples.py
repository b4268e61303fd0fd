"""Lists examples of reductions, products, layers and losses for record_json_cases.py."""

import torch

from json_examples import B, K, P, R, Z, inf, nan

# Reductions.
EXAMPLES = [(op, [R(3, 4)], {}) for op in
             "any all count_nonzero nansum nanmean prod amax amin argmax argmin std var_mean "
             "std_mean norm vector_norm linalg.norm aminmax median nanmedian mode msort diff trapezoid trapz".split()]
EXAMPLES += [(op, [R(3, 4)], {"dim": 1, "keepdim": True}) for op in
             "any all nansum nanmean prod logsumexp amax amin std var_mean std_mean norm "
             "vector_norm linalg.norm aminmax max min median nanmedian mode".split()]
EXAMPLES += [(op, [R(3, 4)], {"dim": 0}) for op in
             "max min median nanmedian cummax cummin logcumsumexp count_nonzero prod mode argmin "
             "aminmax".split()]
EXAMPLES += [(op, [R(3, 4, 2)], {"dim": [0, 2]}) for op in
             "any all sum amax amin logsumexp std std_mean count_nonzero norm nansum".split()]
EXAMPLES += [(op, [torch.tensor([[1, nan, 2], [nan, 5, 4.5]])], {"dim": 1}) for op in
             "nansum nanmean nanmedian median".split()]
EXAMPLES += [
    ("sum", [Z(0, 9, 7)], {}),
    ("sum", [Z(0, 9, 7)], {"dtype": "float64"}),
    ("mean", [Z(0, 9, 7)], {"dtype": "float32"}),
    ("prod", [R(7).float()], {"dtype": "float64"}),
    ("cumsum", [Z(0, 9, 7)], {"dim": 0, "dtype": "float32"}),
    ("cumprod", [Z(0, 3, 7)], {"dim": -1}),
    ("cumsum", [Z(0, 9, 7)], {"dim": 0, "dtype": "int32"}),
    ("sum", [R(3, 4).bfloat16()], {"dim": 0}),
    ("any", [B(3, 4)], {"dim": 0}),
    ("var", [R(3, 4)], {"dim": 1, "unbiased": False}),
    ("var", [R(3, 4)], {"unbiased": True}),
    ("std", [R(3, 4)], {"dim": 1, "correction": 2}),
    ("argmax", [R(3, 4)], {"keepdim": True}),
    ("max", [R(3, 5), R(5)], {}),
    ("norm", [R(3, 4)], {"p": 1, "dim": 1}),
    ("norm", [R(3, 4)], {"p": "fro"}),
    ("norm", [R(3, 4)], {"p": inf}),
    ("linalg.norm", [R(3, 4)], {"ord": "fro"}),
    ("linalg.norm", [R(3, 4)], {"ord": 1}),
    ("linalg.norm", [R(2, 3, 4)], {"ord": -inf, "dim": [2, 0], "keepdim": True}),
    ("linalg.norm", [R(2, 3, 4)], {"ord": inf, "dim": [0, 1]}),
    ("linalg.norm", [R(5)], {"ord": 3}),
    ("vector_norm", [R(3, 4)], {"ord": 0.5, "dim": [0]}),
    ("vector_norm", [R(3, 4).float()], {"ord": -inf, "dtype": "float64"}),
    ("renorm", [R(3, 4)], {"p": 2, "dim": 0, "maxnorm": 1.5}),
    ("topk", [R(3, 5)], {"k": 3, "dim": 0, "sorted": True}),
    ("sort", [Z(0, 4, 3, 7)], {"stable": True}),
    ("argsort", [Z(0, 4, 3, 7)], {"dim": 0, "stable": True, "descending": True}),
    ("kthvalue", [R(3, 5)], {"k": 2}),
    ("kthvalue", [R(3, 5)], {"k": 3, "dim": 0, "keepdim": True}),
    ("quantile", [R(3, 5)], {"q": 0.3}),
    ("quantile", [R(3, 5)], {"q": 0.6, "dim": 1, "keepdim": True, "interpolation": "lower"}),
    ("quantile", [R(3, 5), K(torch.tensor([0.1, 0.75]).double())], {"dim": 0}),
    ("quantile", [R(9)], {"q": [0.1, 0.5], "interpolation": "midpoint"}),
    ("quantile", [R(9)], {"q": 0.3, "interpolation": "nearest"}),
    ("nanquantile", [torch.tensor([[1, nan, 2], [nan, 5, 4.5]])],
     {"q": 0.3, "dim": 1, "interpolation": "higher"}),
    ("histc", [K(P(20))], {"bins": 5}),
    ("histc", [K(P(20))], {"bins": 4, "min": 0.25, "max": 0.75}),
    ("bincount", [Z(0, 5, 20)], {"minlength": 8}),
    ("bincount", [Z(0, 5, 20), K(R(20))], {}),
    ("unique", [K(R(5))], {}),
    ("unique", [Z(0, 5, 3, 4)], {"return_inverse": True, "return_counts": True}),
    ("unique", [Z(0, 2, 6, 2)], {"dim": 0, "return_counts": True}),
    ("unique_consecutive", [Z(0, 2, 12)], {"return_inverse": True}),
    ("searchsorted", [torch.arange(5.0), K(P(2, 3).float() * 5)], {"right": True}),
    ("searchsorted", [torch.arange(5)], {"input": 3, "side": "right", "out_int32": True}),
    ("searchsorted", [torch.tensor([3, 1, 2]), Z(0, 5, 4), torch.tensor([1, 2, 0])], {}),
    ("bucketize", [Z(0, 9, 3, 4), torch.tensor([1, 3, 5])], {"right": True}),
    ("bucketize", [torch.tensor([1, 3, 5])], {"input": 3, "out_int32": True}),
    ("diff", [R(3, 5)], {"n": 2, "dim": 0}),
    ("diff", [R(3, 5), R(3, 1), R(3, 2)], {}),
    ("diff", [R(3, 5), R(3, 1)], {"n": 0}),
    ("trapezoid", [R(3, 5)], {"dx": 0.5, "dim": 0}),
    ("trapezoid", [R(3, 5), R(5)], {}),
]

# Products and distances.
EXAMPLES += [
    ("bmm", [R(2, 3, 4), R(2, 4, 5)], {}),
    ("mm", [R(3, 4), R(4, 5)], {}),
    ("mv", [R(3, 4), R(4)], {}),
    ("dot", [R(4), R(4)], {}),
    ("vdot", [R(4), R(4)], {}),
    ("inner", [R(2, 3), R(4, 3)], {}),
    ("inner", [R(3), R(3)], {}),
    ("vecdot", [R(2, 3), R(2, 3)], {"dim": 0}),
    ("outer", [R(3), R(4)], {}),
    ("ger", [R(3), R(4)], {}),
    ("kron", [R(2, 3), R(3, 2)], {}),
    ("addmm", [R(5), R(3, 4), R(4, 5)], {"beta": 0.5, "alpha": 2}),
    ("addmm", [Z(0, 9, 3, 5), Z(0, 9, 3, 4), Z(0, 9, 4, 5)], {"alpha": 2}),
    ("addmv", [R(3), R(3, 4), R(4)], {}),
    ("addr", [R(3, 4), R(3), R(4)], {"alpha": -1}),
    ("baddbmm", [R(2, 3, 5), R(2, 3, 4), R(2, 4, 5)], {"beta": 2}),
    ("addbmm", [R(3, 5), R(2, 3, 4), R(2, 4, 5)], {"alpha": 0.5}),
    ("matrix_power", [R(3, 3)], {"n": 3}),
    ("multi_dot", [[R(3), R(3, 4), R(4, 2)]], {}),
    ("chain_matmul", [[R(3, 4), R(4, 2), R(2, 5)]], {}),
    ("cross", [R(2, 3), R(2, 3)], {"dim": 1}),
    ("linalg.cross", [R(3, 3), R(3, 3)], {}),
    ("tensordot", [R(2, 3, 4), R(3, 4, 5)], {}),
    ("tensordot", [R(2, 3), R(3, 2)], {"dims": 1}),
    ("tensordot", [R(2, 3, 4), R(4, 5, 2)], {"dims": [[0, 2], [2, 0]]}),
    ("einsum", [[R(2, 3, 4), R(2, 4, 5)]], {"equation": "bij,bjk->bik"}),
    ("einsum", [[R(3, 3)]], {"equation": "ii"}),
    ("einsum", [[R(3), R(4), R(2, 3)]], {"equation": "i, j, ...i -> ...j"}),
    ("cdist", [R(2, 3, 4), R(2, 5, 4)], {}),
    ("cdist", [R(3, 4), R(5, 4)],
     {"p": 1, "compute_mode": "donot_use_mm_for_euclid_dist"}),
    ("pairwise_distance", [R(3, 4), R(3, 4)], {}),
    ("pairwise_distance", [R(3, 4), R(4)], {"p": 3, "eps": 1e-3, "keepdim": True}),
    ("cosine_similarity", [R(3, 4), R(3, 4)], {}),
    ("cosine_similarity", [R(3, 4), R(4)], {"dim": -1, "eps": 1e-6}),
    ("normalize", [R(3, 4)], {}),
    ("normalize", [R(3, 4)], {"p": 1, "dim": 0}),
]

# Layers.
EXAMPLES += [
    ("conv2d", [R(1, 2, 5, 6), R(3, 2, 3, 2)], {"padding": "same", "dilation": [1, 3]}),
    ("conv2d", [R(1, 2, 5, 6), R(3, 2, 3, 2)], {"padding": "valid", "stride": 2}),
    ("conv_transpose2d", [R(1, 4, 3, 3), R(4, 2, 2, 3), R(4)],
     {"stride": [2, 1], "padding": [0, 1], "groups": 2, "dilation": 2}),
    ("scaled_dot_product_attention", [R(2, 3, 4), R(2, 5, 4), R(2, 5, 4)], {"dropout_p": 0.0}),
    ("scaled_dot_product_attention", [R(1, 4, 3, 4), R(1, 2, 3, 4), R(1, 2, 3, 4), K(R(3, 3))],
     {"enable_gqa": True}),
    ("layer_norm", [R(2, 3, 5), R(3, 5), R(3, 5)], {"normalized_shape": [3, 5], "eps": 1e-3}),
    ("layer_norm", [R(3, 5), None, None], {"normalized_shape": [5]}),
    ("rms_norm", [R(2, 3, 5), R(3, 5)], {"normalized_shape": [3, 5]}),
    ("batch_norm", [R(2, 3, 4, 2), R(3), P(3), R(3), R(3)],
     {"training": True, "momentum": 0.2, "eps": 1e-3}),
    ("group_norm", [R(2, 4, 3, 2), None, None], {"num_groups": 4, "eps": 1e-3}),
    ("max_pool2d", [R(1, 2, 5, 5)], {"kernel_size": [3, 2], "padding": [1, 0], "dilation": 1,
                                     "ceil_mode": True, "return_indices": True}),
    ("max_pool2d_with_indices", [R(2, 5, 5)], {"kernel_size": 2}),
    ("avg_pool2d", [R(1, 2, 5, 5)],
     {"kernel_size": 2, "stride": 2, "ceil_mode": True, "divisor_override": 3}),
    ("adaptive_avg_pool2d", [R(2, 5, 4)], {"output_size": [None, 2]}),
    ("adaptive_max_pool2d", [R(1, 2, 5, 5)], {"output_size": [3, 2], "return_indices": True}),
    ("adaptive_max_pool2d_with_indices", [R(1, 2, 5, 5)], {"output_size": 3}),
    ("interpolate", [R(1, 2, 3, 4)], {"scale_factor": [1.7, 2.3], "mode": "bilinear",
                                      "align_corners": False, "recompute_scale_factor": True}),
    ("interpolate", [R(1, 2, 3, 4)], {"scale_factor": 1.7, "mode": "bilinear"}),
    ("interpolate", [R(1, 2, 5)], {"size": 7, "mode": "linear"}),
    ("interpolate", [R(1, 2, 3, 2, 2)], {"size": [2, 3, 4], "mode": "trilinear"}),
    ("interpolate", [R(1, 2, 5, 4)], {"size": [3, 7], "mode": "bicubic", "antialias": True}),
    ("interpolate", [R(1, 2, 5, 4)], {"scale_factor": 1.6, "mode": "nearest-exact"}),
    ("interpolate", [R(1, 2, 5, 4)], {"size": [3, 2], "mode": "area"}),
    ("grid_sample", [R(1, 2, 3, 4), R(1, 2, 3, 2)],
     {"mode": "bicubic", "padding_mode": "border", "align_corners": False}),
    ("affine_grid", [R(2, 2, 3)], {"size": [2, 1, 3, 4], "align_corners": True}),
    ("upsample", [R(1, 2, 3, 4)], {"size": [5, 7]}),
    ("upsample_nearest", [R(1, 2, 3, 4)], {"scale_factor": 2}),
    ("upsample_bilinear", [R(1, 2, 3, 4)], {"size": [5, 7]}),
]

# Losses.
def S(*shape):
    """Returns numbers that are 1 or -1."""
    return K((torch.randint(0, 2, shape) * 2 - 1).double())


LOGS = R(6, 2, 4).log_softmax(-1)
for reduction in ("none", "mean", "sum"):
    r = {"reduction": reduction}
    EXAMPLES += [
        ("cross_entropy", [R(4, 5), torch.tensor([1, 4, -100, 0]), K(P(5))], r),
        ("cross_entropy", [R(2, 5, 3), K(P(2, 5, 3).softmax(1))], {**r, "label_smoothing": 0.1}),
        ("nll_loss", [R(4, 5), torch.tensor([1, 4, 2, 0]), K(P(5))], {**r, "ignore_index": 2}),
        ("kl_div", [R(3, 4), P(3, 4)], r),
        ("gaussian_nll_loss", [R(3, 4), R(3, 4), P(3, 4)], {**r, "full": True}),
        ("poisson_nll_loss", [R(3, 4), K(P(3, 4) * 5)], {**r, "full": True}),
        ("mse_loss", [R(3, 4), R(3, 4), K(P(3, 4))], r),
        ("l1_loss", [R(3, 4), R(3, 4)], r),
        ("smooth_l1_loss", [R(3, 4), R(3, 4)], {**r, "beta": 0.5}),
        ("huber_loss", [R(3, 4), R(3, 4)], {**r, "delta": 0.5}),
        ("soft_margin_loss", [R(3, 4), S(3, 4)], r),
        ("multilabel_soft_margin_loss", [R(3, 4), K(B(3, 4).double()), K(P(4))], r),
        ("margin_ranking_loss", [R(4), R(4), S(4)], {**r, "margin": 0.5}),
        ("hinge_embedding_loss", [R(3, 4), S(3, 4)], {**r, "margin": 0.5}),
        ("multi_margin_loss", [R(4, 5), Z(0, 5, 4), K(P(5))], {**r, "p": 2, "margin": 0.5}),
        ("multilabel_margin_loss",
         [R(2, 4), torch.tensor([[3, 0, -1, 1], [1, 2, 3, -1]])], r),
        ("cosine_embedding_loss", [R(3, 4), R(3, 4), S(3)], {**r, "margin": 0.25}),
        ("triplet_margin_loss", [R(3, 4), R(3, 4), R(3, 4)], {**r, "p": 1, "swap": True}),
        ("triplet_margin_with_distance_loss", [R(3, 4), R(3, 4), R(3, 4)], {**r, "margin": 2}),
        ("sigmoid_focal_loss", [R(3, 4), K(B(3, 4).double())], r),
        ("ctc_loss", [LOGS.clone(), Z(1, 4, 2, 3), torch.tensor([6, 5]), torch.tensor([3, 2])], r),
        ("binary_cross_entropy_with_logits", [R(3, 4), P(3, 4)], r),
    ]
EXAMPLES += [
    ("cross_entropy", [R(5), torch.tensor(2)], {"size_average": False}),
    ("nll_loss", [R(2, 5, 3), Z(0, 5, 2, 3)], {}),
    ("linear_cross_entropy", [R(4, 3), R(5, 3), Z(0, 5, 4)], {"label_smoothing": 0.1}),
    ("kl_div", [R(3, 4), R(3, 4)], {"reduction": "batchmean", "log_target": True}),
    ("gaussian_nll_loss", [R(3, 4), R(3, 4)], {"var": 0.5}),
    ("poisson_nll_loss", [P(3, 4), K(P(3, 4))], {"log_input": False, "eps": 1e-3}),
    ("smooth_l1_loss", [R(3, 4), R(3, 4)], {}),
    ("huber_loss", [R(3, 4), R(3, 4), K(P(3, 4))], {}),
    ("multi_margin_loss", [R(4, 5), Z(0, 5, 4)], {}),
    ("triplet_margin_loss", [R(3, 4), R(3, 4), R(3, 4)], {"margin": 0.5, "eps": 1e-3}),
    ("ctc_loss", [LOGS[:, 0].clone(), torch.tensor([1, 3])],
     {"input_lengths": [6], "target_lengths": [2], "blank": 0, "zero_infinity": True}),
    ("sigmoid_focal_loss", [R(3, 4), K(B(3, 4).double())], {"alpha": -1, "gamma": 1}),
]
