#include "accel/state/merge_weights.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "accel/process/partial_state.h"
#include "accel/state/checkpoint.h"
#include "core/files/distributed_checkpoint.h"
#include "core/files/folder.h"
#include "core/files/sharded_folder.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#include "dist/group/shared_error.h"
#include "dist/sharding/deepspeed_checkpoint.h"
#include "nn/files/weight_files.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

// The tensors of a checkpoint folder. They are read one at a time.
struct Source {
    nn::StateDict weights;  // meta tensors
    TensorReader read;
    std::string folder;              // the folder with the files
    std::vector<std::string> files;  // in the order of removal: an index file comes first
    bool has_other_values = false;
};

Tensor meta_tensor(const Shape& shape, DType dtype) {
    return Tensor::empty(shape, {.dtype = dtype, .device = Device::meta()});
}

Source source_of(std::shared_ptr<const DistributedCheckpoint> checkpoint) {
    Source source;
    auto names = checkpoint->names_in_state();
    for (const auto& [name, name_in_file] : names) {
        const DistributedTensor& tensor = checkpoint->tensors().at(name_in_file);
        source.weights.emplace_back(name, meta_tensor(tensor.shape, tensor.dtype));
    }
    source.folder = checkpoint->path();
    source.files = checkpoint->files();
    source.has_other_values = !checkpoint->values().empty();
    source.read = [checkpoint = std::move(checkpoint), names = std::move(names)](
                      const std::string& name) { return checkpoint->read(names.at(name)); };
    return source;
}

Source source_of(std::shared_ptr<const ShardedFolder> folder) {
    Source source;
    std::set<std::string> files;
    for (const auto& [name, entry] : folder->entries()) {
        source.weights.emplace_back(name, meta_tensor(entry.shape, entry.dtype));
        for (const ShardedFolder::Entry::Part& part : entry.parts) files.insert(part.file);
    }
    source.folder = folder->path();
    source.files = {kShardedIndexName};
    source.files.insert(source.files.end(), files.begin(), files.end());
    source.has_other_values = !folder->extra().is_null();
    source.read = [folder = std::move(folder)](const std::string& name) {
        return folder->read(name);
    };
    return source;
}

Source source_of(std::shared_ptr<const dist::DeepSpeedCheckpoint> checkpoint) {
    Source source;
    for (const auto& [name, weight] : checkpoint->weights())
        source.weights.emplace_back(name, meta_tensor(weight.shape(), weight.dtype()));
    source.folder = checkpoint->path();
    source.files = checkpoint->files();
    for (const std::string& name : checkpoint->missing())
        log(LogLevel::warning, "merge_fsdp_weights: ", printable(source.folder),
            ": contains no elements of ", printable(name), ", which is left out");
    source.read = [checkpoint = std::move(checkpoint)](const std::string& name) {
        return checkpoint->read(name);
    };
    return source;
}

bool is_sharded_checkpoint(const std::string& folder) {
    return DistributedCheckpoint::is_one(folder) || ShardedFolder::is_one(folder) ||
           dist::DeepSpeedCheckpoint::is_one(folder);
}

// Returns the error for a folder that is missing or not a checkpoint. If the folder exists, the
// message lists the subfolders that are checkpoints.
FileError missing_checkpoint(const std::string& folder) {
    std::string text = str("merge_fsdp_weights: ", printable(folder));
    if (kind_of(folder + "/.") != FileKind::folder)
        return FileError(text + ": the folder does not exist");
    text +=
        str(": has neither .metadata, which PyTorch's checkpoints have, nor ", kShardedIndexName,
            " of Axle's sharded checkpoints, nor DeepSpeed's ", "*_model_states.pt");
    std::string found;
    for (const std::string& name : list_folder(folder)) {
        const std::string path = str(folder, "/", name);
        if (is_sharded_checkpoint(path)) found += str(found.empty() ? "" : " or ", printable(path));
    }
    return FileError(found.empty() ? text : text + "; pass " + found);
}

// Returns the absolute path of a folder, with symbolic links resolved.
fs::path resolved(const std::string& folder) {
    std::error_code error;
    fs::path path = fs::canonical(folder, error);
    if (error)
        throw FileError(str("merge_fsdp_weights: ", printable(folder),
                            ": the absolute path can't be determined: ", error.message()));
    return path;
}

// Opens a folder that Axle has written. If the folder is in a checkpoint, verifies all data that is
// read against the checksums in the checkpoint's manifest.
std::shared_ptr<const ShardedFolder> open_sharded(const std::string& folder) {
    const fs::path path = resolved(folder);
    const std::string parent = path.parent_path().string();
    const std::string prefix = path.filename().string() + "/";
    if (!is_checkpoint(parent)) return std::make_shared<const ShardedFolder>(folder);
    const auto checkpoint = std::make_shared<const CheckpointReader>(
        parent, [](const std::string&) { return true; }, prefix);
    const std::string index = prefix + kShardedIndexName;
    checkpoint->check(index, 0, std::numeric_limits<std::int64_t>::max());
    return std::make_shared<const ShardedFolder>(
        folder,
        [checkpoint, prefix](const std::string& file, std::int64_t begin, std::int64_t end) {
            checkpoint->check(prefix + file, begin, end);
        });
}

Source open_source(const std::string& folder) {
    if (DistributedCheckpoint::is_one(folder))
        return source_of(std::make_shared<const DistributedCheckpoint>(folder));
    if (ShardedFolder::is_one(folder)) return source_of(open_sharded(folder));
    if (dist::DeepSpeedCheckpoint::is_one(folder))
        return source_of(std::make_shared<const dist::DeepSpeedCheckpoint>(folder));
    throw missing_checkpoint(folder);
}

// Removes the files of a checkpoint in the given order: an index is first, because a folder without
// it is not a checkpoint. Removes the folder too or, if it has other files, logs a warning.
void remove_checkpoint(const std::string& folder, const std::vector<std::string>& files) {
    const std::string path = resolved(folder).string();
    for (const std::string& name : files) remove_file(path, name);
    remove_if_empty(folder_of(path), fs::path(path).filename().string());
    if (kind_of(path))
        log(LogLevel::warning, "merge_fsdp_weights: ", printable(folder),
            " contains other files and is kept");
}

void merge(const std::string& checkpoint_dir, const std::string& output_path,
           bool remove_checkpoint_dir, nn::ShardSize max_shard_size) {
    const profiler::Scope scope("merge_fsdp_weights", profiler::Category::io);
    const Source source = open_source(checkpoint_dir);
    if (source.weights.empty())
        throw FileError(
            str("merge_fsdp_weights: ", printable(checkpoint_dir), ": contains no tensors"));
    if (source.has_other_values)
        log(LogLevel::warning, "merge_fsdp_weights: ", printable(checkpoint_dir),
            ": values that are not tensors are left out");
    nn::save_weights(source.weights, output_path, max_shard_size, source.read);
    if (remove_checkpoint_dir) remove_checkpoint(source.folder, source.files);
}

}  // namespace

void merge_fsdp_weights(const std::string& checkpoint_dir, const std::string& output_path,
                        bool safe_serialization, bool remove_checkpoint_dir,
                        nn::ShardSize max_shard_size) {
    if (!safe_serialization)
        throw UsageError(
            "merge_fsdp_weights: safe_serialization = false is not supported: Axle reads pickles, "
            "but does not write them; leave it out, because PyTorch also reads safetensors files");
    const auto run = [&] {
        merge(checkpoint_dir, output_path, remove_checkpoint_dir, max_shard_size);
    };
    const std::optional<PartialState> state = PartialState::current();
    if (!state) return run();
    dist::gather_or_throw(*state->process_group(), "merge_fsdp_weights", [&]() -> Tree {
        if (state->is_main_process()) run();
        return {};
    });
}

}  // namespace axle::accel
