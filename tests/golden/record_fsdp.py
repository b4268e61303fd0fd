"""Records, in fsdp.json, the variables that `accelerate launch` sets for options of FSDP, and the
configurations that `accelerate to-fsdp2` writes.
"""

import copy
import json
import os
import pathlib
import tempfile

import yaml
from accelerate.commands import launch, to_fsdp2
from accelerate.utils.launch import prepare_multi_gpu_env

FSDP1 = {
    "fsdp_version": 1,
    "fsdp_reshard_after_forward": "SHARD_GRAD_OP",
    "fsdp_offload_params": True,
    "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP",
    "fsdp_min_num_params": 2000,
    "fsdp_backward_prefetch": "BACKWARD_POST",
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_forward_prefetch": True,
    "fsdp_use_orig_params": False,
    "fsdp_cpu_ram_efficient_loading": False,
    "fsdp_sync_module_states": False,
    "fsdp_activation_checkpointing": True,
}
FSDP2 = {
    "fsdp_version": 2,
    "fsdp_reshard_after_forward": False,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_transformer_layer_cls_to_wrap": "GPT2Block,Embedding",
    "fsdp_activation_checkpointing": True,
    "fsdp_activation_checkpointing_offload": True,
    "fsdp_cpu_ram_efficient_loading": False,
    "fsdp_ignored_modules": "h.*ln_1",
}
LAUNCHES = [
    (["--use_fsdp"], None),
    (["--use_fsdp", "--fsdp_version=2", "--fsdp_reshard_after_forward=False", "--fsdp_state_dict_type=FULL_STATE_DICT"], None),
    (["--use_fsdp", "--fsdp_sharding_strategy=2", "--fsdp_min_num_params=7", "--fsdp_backward_prefetch=NO_PREFETCH"], None),
    ([], FSDP1),
    ([], FSDP2),
    ([], {"version": 2, "offload_params": True}),
    (["--fsdp_offload_params=true", "--fsdp_auto_wrap_policy=NO_WRAP"], FSDP2),
]
CONVERSIONS = [FSDP1, {"fsdp_version": 1, "fsdp_transformer_layer_cls_to_wrap": "GPT2Block"}] + [
    {"fsdp_sharding_strategy": strategy, "fsdp_offload_params": False}
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "NO_SHARD")
]


def variables(flags, section):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config.yaml")
        kind = "NO" if section is None else "FSDP"
        path.write_text(
            yaml.safe_dump(
                {
                    "compute_environment": "LOCAL_MACHINE",
                    "distributed_type": kind,
                    "num_processes": 2,
                    "fsdp_config": section or {},
                }
            )
        )
        args = launch.launch_command_parser().parse_args(["--config_file", str(path), *flags, "script.py"])
        args, _, _ = launch._validate_launch_command(args)
        environment = prepare_multi_gpu_env(args)
    return {name: value for name, value in environment.items() if "FSDP" in name and "FP8" not in name}


def converted(section):
    return to_fsdp2.convert_config_to_fsdp2({"fsdp_config": copy.deepcopy(section)})["fsdp_config"]


def main():
    for name in [name for name in os.environ if "FSDP" in name]:
        del os.environ[name]
    record = {
        "launches": [
            {"flags": flags, "fsdp_config": section, "environment": variables(flags, section)}
            for flags, section in LAUNCHES
        ],
        "conversions": [{"fsdp_config": section, "converted": converted(section)} for section in CONVERSIONS],
    }
    pathlib.Path(__file__).with_name("fsdp.json").write_text(json.dumps(record, indent=1) + "\n")


main()
