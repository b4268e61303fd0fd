#include "nn/files/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/files/torch_file.h"
#include "core/system/log.h"
#include "core/text/size_text.h"
#include "core/tree/tree.h"
#include "core/tree/tree_utils.h"

namespace axle::nn {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafetensors = ".safetensors";
// The limits of an index file. The largest published index files have 20 MB and need 4 bytes of
// memory per byte of the file.
constexpr std::int64_t kMaxIndex = std::int64_t{64} << 20;
constexpr std::size_t kIndexMemory = std::size_t{16} << 20, kIndexMemoryPerByte = 8;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

// --- planning

std::string named(std::string_view pattern, const std::string& suffix) {
    static constexpr std::string_view kSuffix = "{suffix}";
    const std::size_t at = pattern.find(kSuffix);
    if (at == std::string_view::npos)
        throw ValueError(str("plan_shards: the pattern of file names must contain {suffix}: ",
                             in_quotes(pattern)));
    return str(pattern.substr(0, at), suffix, pattern.substr(at + kSuffix.size()));
}

std::string five_digits(std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<std::size_t>(digits.size(), 5), '0') + digits;
}

// Returns the shards as lists of indices into `weights`. A weight with more than `limit` bytes gets
// a shard of its own. Skips each weight that shares memory with an earlier weight (is_first is
// false); the caller adds it to the shard of the earlier weight.
std::vector<std::vector<std::size_t>> fill_shards(const std::vector<WeightSize>& weights,
                                                  const std::vector<bool>& is_first,
                                                  std::int64_t limit) {
    std::vector<std::vector<std::size_t>> shards;
    std::vector<std::size_t> filling;
    std::int64_t filled = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const std::int64_t bytes = weights[i].bytes;
        if (!is_first[i]) continue;
        if (bytes > limit) {
            shards.push_back({i});
            continue;
        }
        if (filled > limit - bytes) {
            shards.push_back(std::exchange(filling, {}));
            filled = 0;
        }
        filling.push_back(i);
        filled += bytes;
    }
    if (!filling.empty() || shards.empty()) shards.push_back(std::move(filling));
    return shards;
}

// --- files

// Returns whether the name has the form "model-00002-of-00005.safetensors".
bool is_shard(const std::string& name) {
    static constexpr std::string_view kForm = "model-#####-of-#####.safetensors";
    return std::ranges::equal(name, kForm, [](char c, char form) {
        return form == '#' ? c >= '0' && c <= '9' : c == form;
    });
}

void remove_others(const fs::path& folder, const ShardPlan& plan) {
    std::set<std::string> written;
    for (const ShardPlan::File& file : plan.files) written.insert(file.name);
    if (plan.is_sharded()) written.insert(kWeightsIndexName);
    // Removes the index first, because it must not refer to missing shards.
    std::vector<fs::path> stale = {folder / kWeightsIndexName, folder / kWeightsName};
    for (const std::string& name : list_folder(folder.string()))
        if (is_shard(name)) stale.push_back(folder / name);
    for (const fs::path& path : stale)
        if (!written.contains(path.filename().string())) remove_file(path.string());
}

void check_savable(const StateDict& state, const std::string& directory, bool has_reader) {
    for (const auto& [name, tensor] : state) {
        if (!tensor.defined())
            throw UsageError(str("save_weights: the tensor is undefined: ", printable(name)));
        if (tensor.device().is_meta() && !has_reader)
            throw DeviceError(
                str("save_weights: weights on the meta device have no values to save: ",
                    printable(name)));
    }
    // Throws FileError if `directory` is relative and the working directory was deleted.
    absolute_path(directory.empty() ? "." : directory);
    std::error_code missing;
    if (fs::exists(directory, missing) && !fs::is_directory(directory, missing))
        fail(directory, "can't save weights: the path must be a folder, but is a file");
}

// Returns whether an index may contain this file name. Names consist of letters, digits, '.', '_'
// and '-', because a name with a folder could refer to files elsewhere, and other characters have
// different meanings on different systems.
bool is_shard_name(const std::string& name) {
    constexpr std::size_t kLongest = 255;
    const bool is_known = name.ends_with(kSafetensors) || name.ends_with(".bin");
    return is_known && name.size() <= kLongest && name[0] != '.' &&
           std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
           });
}

void check_format(const std::string& path, const Metadata& metadata) {
    const auto format = metadata.find("format");
    if (format == metadata.end())
        log(LogLevel::warning, printable(path),
            ": the metadata has no \"format\"; assuming \"pt\" (PyTorch)");
    else if (format->second != "pt")
        fail(path,
             str("the format in the metadata must be 'pt': it is ", in_quotes(format->second)));
}

}  // namespace

ShardSize::ShardSize(std::int64_t bytes_) : bytes(bytes_) {
    if (bytes < 0) throw ValueError(str("max_shard_size: the size must not be negative: ", bytes));
}
ShardSize::ShardSize(const std::string& text) : bytes(parse_size_to_int(text)) {}
ShardSize::ShardSize(const char* text) : ShardSize(std::string(text)) {}

ShardPlan plan_shards(const std::vector<WeightSize>& weights, ShardSize max_shard_size,
                      std::string_view pattern) {
    std::unordered_map<const void*, std::size_t> firsts;
    std::vector<bool> is_first(weights.size(), true);
    ShardPlan plan;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i].memory != nullptr)
            is_first[i] = firsts.try_emplace(weights[i].memory, i).second;
        if (is_first[i]) plan.total_size += weights[i].bytes;
    }
    const auto shards = fill_shards(weights, is_first, max_shard_size.bytes);
    std::vector<std::size_t> shard_of(weights.size());
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
        for (const std::size_t i : shards[shard]) shard_of[i] = shard;
        const std::string suffix = shards.size() == 1 ? ""
                                                      : str('-', five_digits(shard + 1), "-of-",
                                                            five_digits(shards.size()));
        plan.files.push_back({named(pattern, suffix), {}});
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const std::size_t first = is_first[i] ? i : firsts.at(weights[i].memory);
        plan.files[shard_of[first]].weights.push_back(weights[i].name);
    }
    return plan;
}

std::string ShardPlan::index() const {
    std::map<std::string, std::string> sorted;
    for (const File& file : files)
        for (const std::string& weight : file.weights) sorted.emplace(weight, file.name);
    Tree map = Tree::map();
    for (const auto& [weight, file] : sorted) map.entries().push_back({weight, file});
    return to_json({{"metadata", {{"total_size", total_size}}}, {"weight_map", std::move(map)}}) +
           "\n";
}

void save_weights(const StateDict& state, const std::string& directory, ShardSize max_shard_size,
                  const TensorReader& read) {
    check_savable(state, directory, static_cast<bool>(read));
    std::vector<WeightSize> sizes;
    std::unordered_map<std::string, const Tensor*> tensors;
    for (const auto& [name, tensor] : state) {
        sizes.push_back(
            {name, tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()))});
        tensors.emplace(name, &tensor);
    }
    const ShardPlan plan = plan_shards(sizes, max_shard_size);
    create_directories(directory, Durability::full);
    const fs::path folder(directory);
    std::vector<std::unique_ptr<AtomicFile>> written;
    const auto write = [&](const std::string& name) -> AtomicFile& {
        return *written.emplace_back(std::make_unique<AtomicFile>((folder / name).string()));
    };
    for (const ShardPlan::File& file : plan.files) {
        NamedTensors part;
        for (const std::string& name : file.weights) part.emplace_back(name, *tensors.at(name));
        AtomicFile& shard = write(file.name);
        // Transformers rejects files without the entry "format". The value "pt" states that the
        // layout is PyTorch's.
        save_safetensors(shard, part, {{"format", "pt"}}, read);
        shard.sync();
    }
    if (plan.is_sharded()) {
        AtomicFile& index = write(kWeightsIndexName);
        index.write(plan.index());
        index.sync();
        // Removes the index before the first shard is replaced. Without an index, old and new
        // shards cannot be combined into one model.
        remove_file((folder / kWeightsIndexName).string());
        sync_folder(directory);
    }
    // The index is the last file: it is written to disk after its shards.
    for (std::size_t i = 0; i < plan.files.size(); ++i) written[i]->replace();
    sync_folder(directory);
    if (plan.is_sharded()) written.back()->commit();
    remove_others(folder, plan);
}

// --- reading

Tensor WeightFiles::Weight::read() const {
    return file_ ? file_->tensor(*entry_) : mapped_.clone();
}
Tensor WeightFiles::Weight::mapped() const {
    return file_ ? file_->mapped_tensor(entry_->name) : mapped_;
}

WeightFiles::WeightFiles(const std::string& path) : path_(path) {
    if (path.ends_with(".json"))
        read_shards();
    else
        weights_ = read_file_of_weights(path);
}

WeightFiles::Weights WeightFiles::read_file_of_weights(const std::string& path) {
    Weights weights;
    if (path.ends_with(kSafetensors)) {
        const SafetensorsFile file(path);
        check_format(path, file.metadata());
        for (const SafetensorsFile::Entry& entry : file.entries())
            weights.emplace(entry.name, Weight(file, entry));
        return weights;
    }
    const Tree saved = load_torch_file(path);
    if (!saved.is_map())
        fail(path,
             str("the file must contain a map of weights, but contains ", name_of(saved.kind())));
    for (const auto& [name, value] : saved.entries()) {
        if (!value.is_tensor())
            fail(path,
                 str(in_quotes(name), " is not a weight; save the model's state_dict() alone"));
        weights.emplace(name, Weight(value.tensor()));
    }
    return weights;
}

void WeightFiles::read_shards() {
    Tree index;
    try {
        const std::string text = read_file(path_, kMaxIndex);
        index = from_json(text, kIndexMemory + kIndexMemoryPerByte * text.size());
    } catch (const ValueError& error) {
        fail(path_, error.what());
    }
    const Tree* map = index.is_map() ? index.find("weight_map") : nullptr;
    if (map == nullptr || !map->is_map()) fail(path_, "weight_map is missing or not a map");
    for (const auto& [name, shard] : map->entries())
        if (!shard.is_string() || !is_shard_name(shard.string()))
            fail(path_, str("weight_map: ", printable(name),
                            " must name a .safetensors or .bin file of the same folder, with "
                            "letters, digits and . _ - only: ",
                            printable(str(shard))));
    std::map<std::string, Weights> shards;
    for (const auto& [name, shard] : map->entries()) {
        const std::string& file = shard.string();
        auto found = shards.find(file);
        if (found == shards.end()) {
            const fs::path path = fs::path(path_).parent_path() / file;
            found = shards.emplace(file, read_file_of_weights(path.string())).first;
        }
        const auto weight = found->second.find(name);
        if (weight == found->second.end())
            fail(path_,
                 str("weight_map: ", printable(file), " does not contain ", printable(name)));
        weights_.insert(found->second.extract(weight));
    }
}

}  // namespace axle::nn
