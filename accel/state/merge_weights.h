// merge_fsdp_weights(): converts a checkpoint with tensors in parts to weight files. `axle
// merge-weights` calls it.
#pragma once

#include <string>

#include "nn/files/shard_size.h"

namespace axle::accel {

// Reads the tensors of `checkpoint_dir` and writes them to model.safetensors in `output_path`, a
// folder that is created if it is missing. Weights above max_shard_size are written to several
// files with an index, as save_model() does. Only one tensor is in memory at a time.
//
// `checkpoint_dir` is the folder pytorch_model_fsdp_0 in the directory of save_state(). It contains
// a distributed checkpoint that Accelerate has written (core/files/distributed_checkpoint.h), or
// the parts that Axle has written for SHARDED_STATE_DICT (core/files/sharded_folder.h). Axle's
// parts are verified with the checksums of the manifest in the parent folder, if it exists. The
// tensors get the model's names, without the key "model" of PyTorch's FSDP checkpoints. Values that
// are not tensors are left out with a warning.
//
// `checkpoint_dir` may also be a checkpoint of DeepSpeed (dist/sharding/deepspeed_checkpoint.h),
// such as the folder pytorch_model that Accelerate writes with DeepSpeed. It may also be the parent
// folder, whose file "latest" contains the name of the checkpoint. Trained weights are then f32, as
// in zero_to_fp32.py of DeepSpeed. Weights that no file contains are left out with a warning.
//
// With remove_checkpoint_dir, removes the files of the checkpoint when the weights are on the disk.
// Also removes the folder, unless it contains other files.
//
// The main process of the program's PartialState writes, and the other processes wait for it. An
// error of the main process is thrown on all processes. Without a PartialState, this process
// writes. Throws FileError if the checkpoint is missing or invalid or has no tensors, or if a file
// cannot be written; the weight files are then unchanged. Also throws FileError if a file of the
// checkpoint cannot be removed. safe_serialization = false throws UsageError, because Axle does not
// write pickles.
void merge_fsdp_weights(const std::string& checkpoint_dir, const std::string& output_path,
                        bool safe_serialization = true, bool remove_checkpoint_dir = false,
                        nn::ShardSize max_shard_size = "10GB");

}  // namespace axle::accel
