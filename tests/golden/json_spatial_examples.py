"""Lists examples of convolutions and pools of one and three dimensions for record_json_cases.py."""

import torch

from json_examples import P, R

# These examples do not change the random numbers of the other examples.
before = torch.get_rng_state()
torch.manual_seed(1)

EXAMPLES = [
    ("conv1d", [R(2, 4, 9), R(6, 2, 3), R(6)],
     {"stride": 2, "padding": [1], "dilation": 2, "groups": 2}),
    ("conv1d", [R(2, 9), R(3, 2, 4)], {"padding": "same"}),
    ("conv1d", [R(2, 9), R(3, 2, 4)], {"padding": "valid", "stride": [3]}),
    ("conv3d", [R(1, 2, 4, 5, 3), R(4, 1, 2, 3, 2), R(4)],
     {"stride": [1, 2, 1], "padding": 1, "dilation": [2, 1, 1], "groups": 2}),
    ("conv3d", [R(2, 4, 3, 3), R(3, 2, 2, 1, 3)], {"padding": "same", "dilation": [3, 1, 1]}),
    ("conv_transpose1d", [R(1, 4, 5), R(4, 2, 3), R(4)],
     {"stride": 2, "padding": [1], "output_padding": 1, "groups": 2, "dilation": 2}),
    ("conv_transpose3d", [R(2, 3, 2, 3), R(2, 3, 2, 2, 3)],
     {"stride": [2, 1, 3], "padding": [1, 0, 1], "output_padding": [1, 0, 2]}),
    ("max_pool1d", [R(1, 2, 9)], {"kernel_size": 3, "stride": [2], "padding": 1, "dilation": 2,
                                  "ceil_mode": True, "return_indices": True}),
    ("max_pool1d", [R(2, 9)], {"kernel_size": [2]}),
    ("max_pool1d_with_indices", [R(2, 9)], {"kernel_size": 2}),
    ("max_pool3d", [R(1, 2, 4, 5, 6)], {"kernel_size": [2, 3, 2], "padding": [1, 0, 1],
                                        "return_indices": True}),
    ("max_pool3d", [R(2, 4, 5, 6)], {"kernel_size": 2, "stride": [1, 2, 3], "ceil_mode": True}),
    ("max_pool3d_with_indices", [R(2, 4, 5, 6)], {"kernel_size": 3}),
    ("avg_pool1d", [R(1, 2, 9)], {"kernel_size": 4, "stride": 3, "padding": [2],
                                  "ceil_mode": True, "count_include_pad": False}),
    ("avg_pool3d", [R(2, 4, 5, 6)], {"kernel_size": [2, 3, 2], "stride": 2, "padding": [0, 1, 1],
                                     "divisor_override": 5}),
    ("avg_pool3d", [R(1, 2, 4, 5, 6)], {"kernel_size": 3, "padding": 1,
                                        "count_include_pad": False}),
    ("adaptive_avg_pool1d", [R(2, 9)], {"output_size": 4}),
    ("adaptive_avg_pool3d", [R(2, 4, 5, 6)], {"output_size": [None, 2, 4]}),
    ("adaptive_max_pool1d", [R(2, 9)], {"output_size": [4], "return_indices": True}),
    ("adaptive_max_pool1d_with_indices", [R(2, 9)], {"output_size": 4}),
    ("adaptive_max_pool3d", [R(2, 4, 5, 6)], {"output_size": 3}),
    ("adaptive_max_pool3d_with_indices", [R(2, 4, 5, 6)], {"output_size": [3, 2, 4]}),
    ("lp_pool1d", [P(2, 9)], {"norm_type": 2.5, "kernel_size": 3}),
    ("lp_pool2d", [P(2, 5, 6)], {"norm_type": 2, "kernel_size": [2, 3], "stride": 1}),
    ("lp_pool3d", [P(2, 4, 5, 6)], {"norm_type": 3, "kernel_size": 2, "ceil_mode": True}),
    ("max_unpool1d", [R(1, 2, 3), torch.tensor([[[0, 3, 4], [1, 2, 5]]])],
     {"kernel_size": 2, "output_size": [1, 2, 7]}),
    ("max_unpool2d", [R(1, 2, 2), torch.tensor([[[5, 2], [12, 15]]])],
     {"kernel_size": [2, 2], "stride": 2}),
    ("max_unpool3d", [R(1, 1, 1, 2, 1), torch.tensor([[[[[5], [12]]]]])],
     {"kernel_size": [2, 1, 3], "stride": [2, 2, 3], "padding": 0}),
]

torch.set_rng_state(before)
