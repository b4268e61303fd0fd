"""Records configuration files that Accelerate writes, for tests/tools, in accelerate_config/."""

import os
import pathlib
import subprocess
import sys

from accelerate.commands.config.config_args import ClusterConfig

FOLDER = pathlib.Path(__file__).with_name("accelerate_config")


def config(distributed_type, **keys):
    fields = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": distributed_type,
        "mixed_precision": "no",
        "use_cpu": False,
        "debug": False,
        "num_processes": 1,
        "same_network": True,
        "downcast_bf16": "no",
    }
    return ClusterConfig(**(fields | keys))


CONFIGS = {
    "single": lambda: config("NO", gpu_ids="all"),
    "one_gpu": lambda: config("NO", gpu_ids="1", mixed_precision="bf16", enable_cpu_affinity=True),
    "multi_gpu": lambda: config("MULTI_GPU", num_processes=4, gpu_ids="0,1,2,3", mixed_precision="fp16"),
    "multi_cpu": lambda: config("MULTI_CPU", num_processes=8, use_cpu=True, debug=True),
    "mpirun": lambda: config(
        "MULTI_CPU", num_processes=8, use_cpu=True, mpirun_config={"mpirun_hostfile": "/home/me/my hosts: all"}
    ),
    "multi_node": lambda: config(
        "MULTI_GPU",
        num_processes=16,
        num_machines=2,
        machine_rank=1,
        main_process_ip="10.0.0.1",
        main_process_port=29511,
        same_network=False,
        rdzv_backend="c10d",
    ),
    "dynamo": lambda: config(
        "NO",
        dynamo_config={
            "dynamo_backend": "INDUCTOR",
            "dynamo_mode": "max-autotune",
            "dynamo_use_dynamic": False,
            "dynamo_use_fullgraph": True,
            "dynamo_use_regional_compilation": False,
        },
    ),
    "fsdp": lambda: config(
        "FSDP",
        num_processes=2,
        mixed_precision="bf16",
        fsdp_config={
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": True,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": "GPT2Block,Embedding",
            "fsdp_min_num_params": 100000000,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_offload_params": False,
            "fsdp_ignored_modules": None,
        },
    ),
    "deepspeed": lambda: config(
        "DEEPSPEED",
        num_processes=2,
        mixed_precision=None,
        deepspeed_config={"zero_stage": 3, "gradient_clipping": 1.0, "nested": {"empty": {}, "rate": 1e-05}},
    ),
    "parallelism": lambda: config(
        "MULTI_GPU",
        num_processes=8,
        parallelism_config={"parallelism_config_dp_shard_size": 4, "parallelism_config_tp_size": 2},
    ),
    "fp8": lambda: config(
        "MULTI_GPU",
        num_processes=2,
        mixed_precision="fp8",
        fp8_config={"backend": "TE", "margin": 0, "override_linear_precision": [False, False, True]},
    ),
    "tpu": lambda: config(
        "XLA",
        num_processes=8,
        tpu_name="mine",
        tpu_zone="",
        tpu_use_cluster=True,
        commands=["echo yes", "no", "- x"],
        tpu_env=["A=1"],
        tpu_vm=[],
    ),
    # These strings look like other YAML types.
    "quoting": lambda: config(
        "NO",
        main_process_ip="1.0",
        main_training_function="it's",
        gpu_ids="0",
        rdzv_backend="1e-3",
        mpirun_config={
            "a": "1.0e-3", "b": "010", "c": "1:30", "d": "", "e": " x ", "f": "a #b", "g": "~", "h": "on", "i": "-", "j": "-x",
            "k": "? y", "l": "2024-01-31", "m": "=", "n": "<<", "o": "[", "p": "a: b", "q": "a:b", "r": "c:", "s": "@", "t": "0x1F",
            "u": "1_000", "v": ".5", "w": "...", "x": "---", "y": "Null", "z": "%d", "yes": 1e16, "1": 123456.75, "é": 3.0,
            "-": "!", "tab": "a\tb", "accents": "é € 😀", "quote": 'say "x\\"', "hash": "#", "comma": "a, b",
        },
    ),
}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, make in CONFIGS.items():
        make().to_yaml_file(FOLDER / f"{name}.yaml")
    for name in ("multi_gpu", "fsdp"):
        CONFIGS[name]().to_json_file(FOLDER / f"{name}.json")
    default = FOLDER / "default.yaml"
    default.unlink(missing_ok=True)
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "config", "default", "--config_file", default]
    subprocess.run(command, check=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})


main()
