// Options of Accelerator::save_state() and load_state().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/durability.h"

namespace axle::accel {

// The ways to save the states of sharded models and of their optimizers, with the names of FSDP.
enum class StateDictType : std::uint8_t {
    // FULL_STATE_DICT: the writing process gathers the states, one unit at a time. The files are
    // the same as for models that are not sharded.
    full,
    // SHARDED_STATE_DICT: each process writes its parts to folders such as pytorch_model_fsdp_0 and
    // optimizer_0 (core/files/sharded_folder.h). The checkpoint's folder must be on a disk that all
    // processes share. Any number of processes can load it, with and without sharding. Models that
    // tensor parallelism divides are saved as with `full`.
    sharded,
};

struct SaveStateOptions {
    bool safe_serialization = true;  // false throws UsageError: Axle does not write pickles
    // A metric of the saved model, for example the loss of an evaluation, for
    // ProjectConfiguration::best_limit. The value of the process that writes the checkpoint is
    // used.
    std::optional<double> metric = {};
    // Whether the checkpoint survives a power failure (`full`), or only the end of the process
    // (`none`). `none` saves the time of syncing each file to disk.
    Durability durability = Durability::full;
    // Whether save_state() returns after copying the state to host memory. Background threads of
    // the processes that write files then complete the checkpoint, while the program may change all
    // objects. wait_for_saves() and the next save_state() or load_state() wait for the threads and
    // throw their errors. Not implemented with save_on_each_node (NotImplementedError).
    bool asynchronous = false;
    // The type of checkpoints of sharded models; defaults to the type of the FSDP plugin. `sharded`
    // is not implemented with save_on_each_node (NotImplementedError).
    std::optional<StateDictType> state_dict_type = {};
};

struct LoadStateOptions {
    // The device of loaded values: "", "cpu" or "on_device", as in Accelerate; other text throws
    // ValueError. The option has no effect, because values are copied to the device of the object
    // into which they are loaded.
    std::string map_location = {};
    // Whether missing and unexpected weights are errors (FileError). They always are for models
    // with a pipeline.
    bool strict = true;
    // Whether load_state() without a folder skips checkpoints with damaged or missing files. If
    // true, loads the newest checkpoint that can be read, and logs a warning for each checkpoint
    // that it skips. If false, throws FileError if the newest checkpoint is such a checkpoint. A
    // checkpoint that can be read but does not match the prepared objects is never skipped.
    bool skip_damaged = false;
    // Whether a changed identity throws ValueError: a field of ProjectConfiguration::identity that
    // differs from the saved field, or is missing on one side. Fields named in `changed_identity`
    // may differ. Checkpoints that were saved without an identity are not checked.
    bool check_identity = false;
    std::vector<std::string> changed_identity = {};
};

}  // namespace axle::accel
