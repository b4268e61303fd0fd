"""Records the public names of PyTorch 2.15 for tools/parity: writes tests/torch_names.txt.

The names that PyTorch's documentation does not list are left out: parts of implementations (cudnn_*,
quantized_*, *_copy, ...), types of symbolic shapes, and in-place functions, which end with an
underscore.
"""

import inspect
import pathlib
import re

import torch
from torch import nn

INTERNAL = re.compile(
    r"(?!index).*_copy$|.*_$|(cudnn|miopen|mkldnn|fbgemm|quantized|native|sym|unsafe|batch_norm|prepare"
    r"|profiler|parse|import_ir|has_torch|q|hsp|fused)_.*|.*_(jit|elemt|symeig)$|handle_torch_function"
    r"|boolean_dispatch|assert_int_or_pair|.*_with_indices|classproperty|dsmm|hsmm|smm|spmm|saddmm"
    r"|sspaddmm|symeig|unify_type_list|merge_type.*|thread_safe_generator|init_num_threads|Optional"
    r"|get_file_path|typename|autocast_.*|clear_autocast_cache|get_autocast.*|set_autocast.*"
    r"|is_autocast.*|is_anomaly.*|set_anomaly.*|is_vulkan.*|constant_pad_nd|conv_tbc|convolution"
    r"|affine_grid_generator|grid_sampler.*|embedding_renorm|choose_qparams.*|norm_except_dim"
    r"|int_repr|is_inference.*|is_same_size|segment_reduce|geqrf|nonzero_static|narrow_copy|hash_tensor"
    r"|rnn_(relu|tanh).*|(lstm|gru)(_cell)?|slice_inverse|split_with_sizes|frobenius_norm|nuclear_norm"
    r"|to_padded_tensor|module_load|dim_order|const_data_ptr|as_subclass|.*_permuted|solve|eig|lstsq"
    r"|resize.*|.*_renorm_|bind|invert_permutation|mtia|ipu|xpu|c(half|float|double)|is_distributed|sparse_resize.*"
)


def public(place, wanted):
    return sorted(
        name
        for name in dir(place)
        if not name.startswith("_") and wanted(getattr(place, name)) and not INTERNAL.fullmatch(name)
    )


def is_function(value):
    return inspect.isbuiltin(value) or inspect.isfunction(value)


def subclasses(place, base):
    return public(place, lambda value: inspect.isclass(value) and issubclass(value, base))


def main():
    data = torch.utils.data
    functions = public(torch, is_function)
    methods = public(torch.Tensor, callable)
    sections = {
        "torch": functions,
        "torch.nn.functional": public(nn.functional, lambda v: callable(v) and not inspect.isclass(v)),
        "torch.Tensor": [name for name in methods if name not in functions],
        "torch.linalg": public(torch.linalg, is_function),
        "torch.special": public(torch.special, is_function),
        "torch.fft": public(torch.fft, is_function),
        "torch.nn": [name for name in subclasses(nn, nn.Module) if not name.startswith("Lazy")]
        + subclasses(nn, nn.parameter.Parameter),
        "torch.nn.init": sorted(
            name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")
        ),
        "torch.nn.utils": public(nn.utils, inspect.isfunction)
        + ["clip_grad_norm_", "clip_grad_value_"],
        "torch.nn.utils.parametrizations": public(nn.utils.parametrizations, inspect.isfunction),
        "torch.nn.utils.rnn": public(nn.utils.rnn, lambda v: callable(v) and v.__module__.endswith("rnn")),
        "torch.optim": subclasses(torch.optim, torch.optim.Optimizer),
        "torch.optim.swa_utils": ["AveragedModel", "SWALR", "update_bn"],
        "torch.optim.lr_scheduler": subclasses(
            torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler
        ),
        "torch.utils.data": sorted(
            name
            for name in data.__all__
            if re.search("Dataset$|Sampler$|Loader$|split$|Subset$|collate|worker_info", name)
        ),
        "torch.distributions": [
            name for name in torch.distributions.__all__ if not name.endswith("Transform")
        ],
    }
    lines = []
    for section, names in sections.items():
        lines.append(f"## {section}")
        lines += dict.fromkeys(names)
    path = pathlib.Path(__file__).parent.parent / "torch_names.txt"
    path.write_text("\n".join(lines) + "\n")
    print(sum(not line.startswith("#") for line in lines), "names")


if __name__ == "__main__":
    main()
