#include "accel/state/save_model.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/files/torch_file.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#include "nn/files/weight_files.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

// Returns the path of the file with the weights of `checkpoint`, which is a file or a folder. In a
// folder, this is pytorch_model.bin, model.safetensors or the only *.index.json. Throws FileError
// if there is none, and ValueError if there are several *.index.json and neither of the first two.
std::string weights_of(const std::string& checkpoint) {
    std::error_code unreadable;  // ignored: FileError is thrown here or by WeightFiles
    if (!fs::is_directory(checkpoint, unreadable)) return checkpoint;
    const fs::path folder(checkpoint);
    for (const char* name : {nn::kTorchWeightsName, nn::kWeightsName})
        if (fs::exists(folder / name, unreadable)) return (folder / name).string();
    std::vector<std::string> indices;
    for (fs::directory_iterator at(folder, unreadable), end; !unreadable && at != end;
         at.increment(unreadable))
        if (at->path().string().ends_with(".index.json")) indices.push_back(at->path().string());
    if (indices.size() > 1)
        throw ValueError(str("load_checkpoint_in_model: ", printable(checkpoint), " contains ",
                             indices.size(), " files *.index.json; keep only one of them"));
    if (indices.empty())
        throw FileError(str(printable(checkpoint), ": contains neither ", nn::kTorchWeightsName,
                            " nor ", nn::kWeightsName, " nor an .index.json"));
    return indices[0];
}

void check_unused(const char* option, bool is_used) {
    if (is_used)
        throw UsageError(
            str("load_checkpoint_in_model: ", option, " is not implemented yet; leave it out"));
}

void check_options(const LoadCheckpointOptions& options) {
    check_unused("offload_folder", !options.offload_folder.empty());
    check_unused("offload_state_dict", options.offload_state_dict);
    check_unused("offload_buffers", options.offload_buffers);
    check_unused("keep_in_fp32_modules", !options.keep_in_fp32_modules.empty());
    check_unused("offload_8bit_bnb", options.offload_8bit_bnb);
    check_unused("full_state_dict = false", !options.full_state_dict);
    check_unused("broadcast_from_rank0", options.broadcast_from_rank0);
}

// Returns the device that device_map gives for the whole model, or nullopt if device_map is empty.
// Throws UsageError if device_map names modules or offloads weights.
std::optional<Device> device_of(const LoadCheckpointOptions& options) {
    if (options.device_map.empty()) return std::nullopt;
    const auto& [module, device] = *options.device_map.begin();
    check_unused("device_map with names of modules",
                 options.device_map.size() > 1 || !module.empty());
    check_unused("device_map with offloaded weights", device == "disk" || device == "meta");
    return Device::parse(device);
}

// Returns the first `shown` names, separated by commas, followed by ", ..." if there are more.
template <class Entries, class Name>
std::string first_names(const Entries& entries, std::size_t shown, Name&& name) {
    std::string text;
    std::size_t count = 0;
    for (const auto& entry : entries) {
        text += (count == 0 ? "" : ", ") + (count < shown ? printable(name(entry)) : "...");
        if (count++ == shown) break;
    }
    return text;
}

void warn_about(const std::string& checkpoint, const char* what,
                const std::vector<std::string>& names, std::size_t all) {
    if (names.empty()) return;
    log(LogLevel::warning, "load_checkpoint_in_model: ", printable(checkpoint), ": ", names.size(),
        " of ", all, ' ', what, ": ", first_names(names, 8, std::identity()));
}

// Throws FileError if the model has weights, but the files contain none of them.
void check_some_match(const nn::WeightFiles& files, const nn::StateDict& model) {
    if (model.empty()) return;
    for (const auto& [name, tensor] : model)
        if (files.weights().contains(name)) return;
    const auto key = [](const auto& entry) -> const std::string& { return entry.first; };
    const std::string in_file = first_names(files.weights(), 3, key);
    throw FileError(
        str("load_checkpoint_in_model: ", printable(files.path()), ": none of the model's ",
            model.size(), " weights is among the checkpoint's ", files.weights().size(),
            "; the model has ", first_names(model, 3, key),
            in_file.empty() ? "" : "; the checkpoint has ", in_file,
            "; rename the weights, or load them into the submodule to which they belong"));
}

}  // namespace

nn::LoadReport load_checkpoint_in_model(nn::Module& model, const std::string& checkpoint,
                                        const LoadCheckpointOptions& options) {
    check_options(options);
    const std::optional<Device> device = device_of(options);
    const profiler::Scope scope("load_checkpoint_in_model", profiler::Category::io);
    const nn::WeightFiles files(weights_of(checkpoint));
    const nn::StateDict own = model.state_dict();
    check_some_match(files, own);
    nn::StateDict state;
    for (const auto& [name, weight] : files.weights()) state.emplace_back(name, weight.mapped());
    nn::LoadReport report;
    const auto load_state = [&] {
        try {
            report = model.load_state_dict(state, {.strict = options.strict});
        } catch (const OutOfMemory&) {
            throw;
        } catch (const CudaError&) {
            throw;
        } catch (const Error& error) {
            throw FileError(str(printable(files.path()), ": ", error.what()));
        }
    };
    load_state();
    if (options.dtype) {
        model.to(*options.dtype);
        load_state();  // again, because the first load may have rounded to the old dtype
    }
    if (device) model.to(*device);
    warn_about(checkpoint, "weights of the checkpoint are ignored, because the model lacks them",
               report.unexpected, state.size());
    warn_about(checkpoint,
               "weights of the model are not changed, because the checkpoint lacks them",
               report.missing, own.size());
    return report;
}

nn::StateDict clean_state_dict_for_safetensors(const nn::StateDict& state) {
    const auto is_same = [](const Tensor& a, const Tensor& b) {
        return a.is_same(b) ||
               (a.impl()->storage == b.impl()->storage && a.impl()->offset == b.impl()->offset &&
                a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides());
    };
    nn::StateDict cleaned;
    // Indices of the tensors in `cleaned`, by storage.
    std::unordered_multimap<const Storage*, std::size_t> kept;
    std::string dropped;
    for (const auto& [name, tensor] : state) {
        if (!tensor.defined())
            throw UsageError(str("save: the tensor is undefined: ", printable(name)));
        const auto [first, last] = kept.equal_range(tensor.impl()->storage.get());
        const bool is_alias = std::any_of(first, last, [&](const auto& place) {
            return is_same(cleaned[place.second].second, tensor);
        });
        if (is_alias) {
            dropped += (dropped.empty() ? "" : ", ") + name;
            continue;
        }
        kept.emplace(tensor.impl()->storage.get(), cleaned.size());
        cleaned.emplace_back(name, tensor);
    }
    if (!dropped.empty())
        log(LogLevel::warning,
            "save: omitted tensors that share their memory with a saved tensor: ",
            printable(dropped));
    return cleaned;
}

bool is_saving_process(const PartialState& state, bool save_on_each_node) {
    return save_on_each_node ? state.is_local_main_process() : state.is_main_process();
}

void write_object(const nn::StateDict& state, const std::string& path) {
    save_safetensors(path, clean_state_dict_for_safetensors(state), {{"format", "pt"}});
}

void write_object(const Tree& object, const std::string& path) {
    std::size_t tensors = 0;
    for_each_tensor(object, [&](const Tensor&) { ++tensors; });
    if (tensors == 0) return write_file_atomically(path, to_json(object) + "\n");
    if (!object.is_map() || tensors != object.size())
        throw ValueError(
            str("save: the object must be a map of tensors or contain no tensors; save tensors "
                "as a map, and other values in another file: ",
                printable(path)));
    nn::StateDict state;
    for (const auto& [name, value] : object.entries()) {
        if (!value.is_tensor())
            throw ValueError(str("save: the values of the map must be tensors: ", in_quotes(name),
                                 " is not a tensor"));
        state.emplace_back(name, value.tensor());
    }
    write_object(state, path);
}

namespace {

bool saves_here(bool save_on_each_node) {
    const std::optional<PartialState> state = PartialState::current();
    return !state || is_saving_process(*state, save_on_each_node);
}

enum class FileFormat : std::uint8_t { json, safetensors, torch };

// Returns the format of a file by its suffix .json or .safetensors. For other suffixes, the first
// bytes determine the format. A safetensors file starts with the length of its header (8 bytes) and
// "{". JSON starts with a character of kJson. All other files are torch files.
FileFormat format_of(const std::string& path) {
    if (path.ends_with(".json")) return FileFormat::json;
    if (path.ends_with(".safetensors")) return FileFormat::safetensors;
    char start[9] = {};
    std::ifstream(path, std::ios::binary).read(start, sizeof start);
    if (start[8] == '{' && start[5] == 0 && start[6] == 0 && start[7] == 0)
        return FileFormat::safetensors;
    static constexpr std::string_view kJson = "{[\"-0123456789tfn";
    return start[0] != 0 && kJson.find(start[0]) != std::string_view::npos ? FileFormat::json
                                                                           : FileFormat::torch;
}

}  // namespace

void save(const nn::StateDict& state, const std::string& path, bool save_on_each_node) {
    if (saves_here(save_on_each_node)) write_object(state, path);
}
void save(const Tree& object, const std::string& path, bool save_on_each_node) {
    if (saves_here(save_on_each_node)) write_object(object, path);
}

Tree load(const std::string& path) {
    const FileFormat format = format_of(path);
    if (format == FileFormat::json) {
        const std::string text = read_file(path);
        try {
            return from_json(text);
        } catch (const ValueError& error) {
            throw FileError(str(printable(path), ": ", error.what()));
        }
    }
    if (format == FileFormat::torch) return load_torch_file(path);
    Tree tensors = Tree::map();
    for (auto& [name, tensor] : load_safetensors(path).tensors)
        tensors.entries().push_back({name, std::move(tensor)});
    return tensors;
}

}  // namespace axle::accel
