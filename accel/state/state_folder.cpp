#include "accel/state/state_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "accel/state/checkpoint_folder.h"
#include "accel/state/distributed_state.h"
#include "core/files/distributed_checkpoint.h"
#include "core/files/file.h"
#include "core/files/torch_file.h"
#include "nn/files/weight_files.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

// Returns Accelerate's name for a file with this stem. For a model, this is the name of the file
// that exists, or "pytorch_model.bin" (with the model's number) if there is none.
std::string accelerate_name(const fs::path& folder, const std::string& stem) {
    if (stem.starts_with("model")) {
        const std::string whole = stem + ".safetensors";
        if (is_file(folder / whole)) return whole;
        const std::string fsdp = str("pytorch_model_fsdp", stem.substr(5), ".bin");
        return is_file(folder / fsdp) ? fsdp : "pytorch_" + stem + ".bin";
    }
    if (stem.starts_with("scaler")) return stem + ".pt";
    const bool is_pickle = stem.starts_with("custom_") || stem.starts_with("random_");
    return stem + (is_pickle ? ".pkl" : ".bin");
}

// Returns whether a file in a checkpoint is the part of one process (StateFolder::parts()).
bool is_part(const std::string& file) {
    return (file.starts_with("pytorch_model_fsdp_") || file.starts_with("optimizer_")) &&
           file.find("/rank_") != std::string::npos;
}

}  // namespace

std::string numbered(const char* stem, std::size_t i) { return i == 0 ? stem : str(stem, "_", i); }

std::string gradients_stem(std::size_t model, std::size_t rank) {
    return numbered("gradients", model) + (rank == 0 ? "" : str("_rank", rank));
}

std::string folder_of_model(std::size_t i) { return str("pytorch_model_fsdp_", i); }
std::string folder_of_optimizer(std::size_t i) { return str("optimizer_", i); }

StateFolder::StateFolder(std::string path) : path_(std::move(path)) {
    if (!is_of_accelerate(path_)) axle_.emplace(path_, is_part);
}

bool StateFolder::is_of_accelerate(const std::string& path) {
    static constexpr std::array kNames = {"random_states_0.pkl", "optimizer.bin",
                                          "pytorch_model.bin", "pytorch_model_fsdp.bin"};
    return !is_checkpoint(path) && std::any_of(kNames.begin(), kNames.end(), [&](const char* name) {
        return is_file(fs::path(path) / name);
    });
}

std::optional<std::int64_t> StateFolder::iteration() const {
    return axle_ ? axle_->label().iteration : checkpoint_number(path_);
}

bool StateFolder::has_parts(const std::string& name) const {
    return axle_ && axle_->contains(name + "/" + kShardedIndexName);
}

ShardedFolder StateFolder::parts(const std::string& name) const {
    return ShardedFolder(path_ + "/" + name, [this, name](const std::string& file,
                                                          std::int64_t begin, std::int64_t end) {
        axle_->check(name + "/" + file, begin, end);
    });
}

bool StateFolder::contains(const std::string& stem) const {
    if (!axle_) return is_file(file(stem));
    return axle_->contains(stem + ".json") || axle_->contains(stem + ".safetensors");
}

std::string StateFolder::file(const std::string& stem) const {
    if (!axle_) return (fs::path(path_) / accelerate_name(path_, stem)).string();
    const bool is_json = axle_->contains(stem + ".json") || !axle_->contains(stem + ".safetensors");
    return (fs::path(path_) / (stem + (is_json ? ".json" : ".safetensors"))).string();
}

Tree StateFolder::read(const std::string& stem) const {
    return axle_ ? axle_->read(stem) : load_torch_file(file(stem));
}

nn::StateDict StateFolder::tensors(const std::string& stem) const {
    if (!axle_ && !contains(stem)) {
        const std::string part = str("pytorch_model_fsdp", stem.substr(5), "_rank0.bin");
        if (is_file(fs::path(path_) / part))
            throw FileError(str(printable(path_),
                                ": was saved with LOCAL_STATE_DICT, whose files (", part,
                                ") neither Axle nor Accelerate can load; save it with "
                                "FULL_STATE_DICT or SHARDED_STATE_DICT"));
        throw FileError(str(printable(path_), ": has neither ", stem, ".safetensors nor pytorch_",
                            stem, ".bin"));
    }
    const nn::WeightFiles files(axle_ ? axle_->file(stem + ".safetensors") : file(stem));
    nn::StateDict state;
    for (const auto& [name, weight] : files.weights()) state.emplace_back(name, weight.mapped());
    return state;
}

nn::StateDict StateFolder::weights(std::size_t i) const {
    const std::string folder = path_ + "/" + folder_of_model(i);
    return !axle_ && DistributedCheckpoint::is_one(folder) ? read_distributed_weights(folder)
                                                           : tensors(numbered("model", i));
}

Tree StateFolder::optimizer(std::size_t i) const {
    const std::string stem = numbered("optimizer", i);
    if (axle_) return read(stem);
    const std::string folder = path_ + "/" + folder_of_optimizer(i);
    if (DistributedCheckpoint::is_one(folder)) return read_distributed_optimizer(folder);
    return with_parameter_numbers(file(stem), read(stem));
}

std::size_t StateFolder::count(const std::string& prefix) const {
    std::size_t n = 0;
    while (contains(str(prefix, n))) ++n;
    return n;
}

std::optional<std::int64_t> StateFolder::step_of(std::size_t rank) const {
    for (const std::size_t r : {rank, std::size_t{0}}) try {
            const Tree states =
                load_torch_file(file(str("random_states_", r)), {.unknown_as_null = true});
            return states["step"].integer();
        } catch (const Error&) {
            continue;
        }
    return std::nullopt;
}

}  // namespace axle::accel
