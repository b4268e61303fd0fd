#include "dist/sharding/deepspeed_checkpoint.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "dist/sharding/deepspeed_files.h"

namespace axle::dist {
namespace {

constexpr const char* kState = "optimizer_state_dict";
constexpr const char* kGroups = "single_partition_of_fp32_groups";  // stages 1 and 2
constexpr const char* kParts = "fp32_flat_groups";                  // stage 3

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

std::int64_t divide_up(std::int64_t n, std::int64_t by) { return n / by + (n % by == 0 ? 0 : 1); }

// Returns the value of a key, or a null Tree if `map` is not a map or lacks the key.
Tree value_of(const Tree& map, std::string_view key) {
    const Tree* const value = map.is_map() ? map.find(key) : nullptr;
    return value == nullptr ? Tree() : *value;
}

// Returns the shape of a weight. Throws ValueError if it is invalid.
Shape shape_of(const std::string& name, const Tree& sizes) {
    Shape shape;
    if (sizes.size() > kMaxDims)
        throw ValueError(
            str(printable(name), " has more than ", kMaxDims, " dimensions: ", sizes.size()));
    for (const Tree& size : sizes.elements()) {
        if (size.integer() < 0)
            throw ValueError(str(printable(name), " has a negative size: ", size.integer()));
        shape.push_back(size.integer());
    }
    if (checked_bytes(shape, DType::f64) < 0)
        throw ValueError(str("the shape of ", printable(name), " is too large: ", shape));
    return shape;
}

// Calls f. Converts a ValueError or IndexError of f to a FileError with the path and the error
// text.
template <class F>
void reading(const std::string& path, F&& f) {
    try {
        f();
    } catch (const ValueError& error) {
        fail(path, error.what());
    } catch (const IndexError& error) {
        fail(path, error.what());
    }
}

}  // namespace

// --- vectors

void DeepSpeedCheckpoint::Flat::add(const Tensor& part) {
    begins.push_back(size);
    size += part.numel();
    parts.push_back(part);
}

void DeepSpeedCheckpoint::Flat::copy(std::int64_t begin, const Tensor& to) const {
    const std::int64_t end = begin + to.numel();
    const auto after = std::ranges::upper_bound(begins, begin);
    for (auto i = static_cast<std::size_t>(after - begins.begin()) - 1;
         i < parts.size() && begins[i] < end; ++i) {
        const std::int64_t first = std::max(begin, begins[i]);
        const std::int64_t last = std::min(end, begins[i] + parts[i].numel());
        if (first >= last) continue;
        to.narrow(0, first - begin, last - first)
            .copy_(parts[i].narrow(0, first - begins[i], last - first));
    }
}

// --- files

bool DeepSpeedCheckpoint::is_one(const std::string& folder) {
    return !find_deepspeed_folder(folder).empty();
}

DeepSpeedCheckpoint::DeepSpeedCheckpoint(const std::string& folder, TorchFileOptions options)
    : path_(find_deepspeed_folder(folder)), options_(options) {
    options_.unknown_as_null = true;
    if (path_.empty()) fail(folder, "contains no checkpoint of DeepSpeed");
    DeepSpeedFiles files = deepspeed_files(path_);
    model_files_ = std::move(files.models);
    optimizer_files_ = std::move(files.optimizers);
    std::vector<Tree> models, optimizers;
    for (const std::string& file : model_files_) models.push_back(load(file));
    for (const std::string& file : optimizer_files_) optimizers.push_back(load(file));
    const std::string path = path_ + "/" + model_files_.front();
    reading(path, [&] {
        const Tree& state = models.front();
        read_model(state);
        const Tree shapes = value_of(state, "param_shapes");
        if (shapes.is_null() && optimizer_files_.empty()) return add_rest(state);  // stage 0
        if (shapes.is_null()) throw ValueError("param_shapes is missing");
        if (optimizers.empty()) throw ValueError("the folder has no files *_optim_states.pt");
        const bool in_parts = !value_of(value_of(optimizers.front(), kState), kParts).is_null();
        if (in_parts && models.size() != optimizers.size())
            throw ValueError(str("stage 3 needs a file with the states of the model for each of ",
                                 optimizers.size(), " processes, but there are ", models.size()));
        if (in_parts)
            read_parts(shapes, optimizers);
        else
            read_groups(shapes, optimizers);
        read_frozen(models, in_parts);
        add_rest(state);
    });
}

std::vector<std::string> DeepSpeedCheckpoint::files() const {
    std::vector<std::string> all = model_files_;
    all.insert(all.end(), optimizer_files_.begin(), optimizer_files_.end());
    return all;
}

Tree DeepSpeedCheckpoint::load(const std::string& file) const {
    const auto map = std::make_shared<MappedFile>(InputFile(path_, file));
    try {
        return load_torch_file(map->bytes(), map, options_);
    } catch (const FileError& error) {
        fail(path_ + "/" + file, error.what());
    }
}

// Returns a vector of weights. Adds its size in bytes to `bytes`, the total size of the vectors
// read from this file. Throws ValueError unless `value` is a vector of floating-point numbers. Also
// throws it if `bytes` exceeds the size of the file: a malicious pickle can refer to the same
// vector many times.
Tensor DeepSpeedCheckpoint::vector_of(const Tree& value, std::int64_t& bytes,
                                      const std::string& file) const {
    const Tensor& vector = value.tensor();
    const DType dtype = vector.dtype();
    if (vector.shape().size() != 1 || !(is_half(dtype) || dtype == f32 || dtype == f64))
        throw ValueError(str("weights must be a vector of floating-point numbers: ", dtype, ' ',
                             vector.shape()));
    bytes += vector.numel() * size_of(dtype);
    if (const std::int64_t size = InputFile(path_, file).size(); bytes > size)
        throw ValueError(str("the vectors of weights must not be larger than the file, which has ",
                             size, " bytes: they have at least ", bytes));
    return vector;
}

// --- weights

void DeepSpeedCheckpoint::add(const std::string& name, Weight weight) {
    if (!weights_.emplace(name, std::move(weight)).second)
        throw ValueError(str(printable(name), " is in the checkpoint twice"));
}

void DeepSpeedCheckpoint::add_whole(const std::string& name, const Tensor& tensor, DType dtype) {
    Weight weight;
    weight.dtype_ = dtype;
    weight.shape_ = tensor.shape();
    weight.parts_ = {tensor};
    add(name, std::move(weight));
}

// Adds the buffers that the states of the model contain. 16-bit buffers become f32.
void DeepSpeedCheckpoint::read_model(const Tree& state) {
    std::set<std::string> buffers;
    for (const Tree& name : state["buffer_names"].elements()) buffers.insert(name.string());
    for (const auto& [name, value] : state["module"].entries()) {
        if (!buffers.contains(name) || !value.is_tensor()) continue;
        const DType dtype = value.dtype();
        add_whole(name, value.tensor(), is_half(dtype) ? DType::f32 : dtype);
    }
}

// Adds the trained weights of stages 1 and 2.
void DeepSpeedCheckpoint::read_groups(const Tree& shapes, const std::vector<Tree>& optimizers) {
    flats_.resize(shapes.size());
    for (std::size_t rank = 0; rank < optimizers.size(); ++rank)
        reading(path_ + "/" + optimizer_files_[rank], [&] {
            const Tree& state = optimizers[rank][kState];
            const Tree& groups = state[kGroups];
            if (groups.size() != shapes.size())
                throw ValueError(
                    str(kGroups, " has ", groups.size(), " groups instead of ", shapes.size()));
            const Tree count = value_of(state, "partition_count");
            std::int64_t processes = count.is_integer() ? count.integer() : 0;
            if (count.is_list())
                for (const Tree& n : count.elements()) processes = std::max(processes, n.integer());
            if (std::cmp_not_equal(processes, optimizers.size()))
                throw ValueError(
                    str("partition_count is ", processes,
                        ", but the number of files *_optim_states.pt in the folder is ",
                        optimizers.size()));
            std::int64_t bytes = 0;
            for (std::size_t g = 0; g < groups.size(); ++g)
                flats_[g].add(vector_of(groups[g], bytes, optimizer_files_[rank]));
        });
    const Tree all_paddings = value_of(optimizers.front()[kState], "param_alignment_paddings");
    const std::int64_t alignment = 2 * std::ssize(optimizers);
    for (std::size_t g = 0; g < flats_.size(); ++g) {
        const Tree paddings = all_paddings.is_list() ? all_paddings[g] : Tree();
        std::int64_t offset = 0, index = 0;
        for (const auto& [name, sizes] : shapes[g].entries()) {
            Weight weight;
            weight.shape_ = shape_of(name, sizes);
            weight.first_ = g;
            weight.count_ = 1;
            weight.offset_ = offset;
            weight.length_ = numel(weight.shape_);
            const std::int64_t padding =
                paddings.is_list() ? paddings[static_cast<std::size_t>(index++)].integer() : 0;
            const std::int64_t left = flats_[g].size - offset;
            if (padding < 0)
                throw ValueError(str("the padding of ", printable(name), " in ",
                                     printable(optimizer_files_.front()),
                                     " is negative: ", padding));
            if (weight.length_ > left || padding > left - weight.length_)
                throw ValueError(str("group ", g, " has ", flats_[g].size,
                                     " elements, too few for ", printable(name), ' ', weight.shape_,
                                     " at element ", offset, " with a padding of ", padding));
            offset += weight.length_ + padding;
            add(name, std::move(weight));
        }
        // DeepSpeed pads the vector to a multiple of 2 elements per process, but does not save all
        // of the padding, so only the rounded sizes are compared.
        if (divide_up(offset, alignment) != divide_up(flats_[g].size, alignment))
            throw ValueError(str("group ", g, " has ", flats_[g].size,
                                 " elements, but the shapes of its weights have ", offset));
    }
}

// Adds the trained weights of stage 3.
void DeepSpeedCheckpoint::read_parts(const Tree& shapes, const std::vector<Tree>& optimizers) {
    flats_.resize(optimizers.size());
    for (std::size_t rank = 0; rank < optimizers.size(); ++rank)
        reading(path_ + "/" + optimizer_files_[rank], [&] {
            const Tree& state = optimizers[rank][kState];
            if (std::cmp_not_equal(state["partition_count"].integer(), optimizers.size()))
                throw ValueError(
                    str("partition_count is ", state["partition_count"].integer(),
                        ", but the number of files *_optim_states.pt in the folder is ",
                        optimizers.size()));
            std::int64_t bytes = 0;
            for (const Tree& part : state[kParts].elements())
                flats_[rank].add(vector_of(part, bytes, optimizer_files_[rank]));
            if (flats_[rank].size != flats_.front().size)
                throw ValueError(str("has ", flats_[rank].size, " elements of weights, but ",
                                     optimizer_files_.front(), " has ", flats_.front().size));
        });
    const std::int64_t size = flats_.front().size;
    std::int64_t offset = 0;
    for (const Tree& group : shapes.elements())
        for (const auto& [name, sizes] : group.entries()) {
            Weight weight;
            weight.shape_ = shape_of(name, sizes);
            weight.count_ = optimizers.size();
            weight.offset_ = offset;
            weight.length_ = divide_up(numel(weight.shape_), std::ssize(optimizers));
            if (weight.length_ > size - offset)
                throw ValueError(str("each process has ", size, " elements, too few for ",
                                     printable(name), ' ', weight.shape_, " at element ", offset));
            offset += weight.length_;
            add(name, std::move(weight));
        }
    if (offset != size)
        throw ValueError(str("each process has ", size, " elements, but the shapes of the weights ",
                             "need ", offset));
}

// Adds the frozen weights that the files list. In stage 3, each process has a part of them.
void DeepSpeedCheckpoint::read_frozen(const std::vector<Tree>& models, bool in_parts) {
    const Tree shapes = value_of(models.front(), "frozen_param_shapes");
    if (shapes.is_null()) return;
    for (const auto& [name, sizes] : shapes.entries()) {
        Weight weight;
        weight.shape_ = shape_of(name, sizes);
        std::int64_t count = 0;
        for (const Tree& state : models) {
            const Tensor& part = state["frozen_param_fragments"][name].tensor();
            if (weight.parts_.empty()) weight.dtype_ = part.dtype();
            if (part.dtype() != weight.dtype_ ||
                (in_parts ? part.shape().size() != 1 : part.shape() != weight.shape_))
                throw ValueError(str("the frozen weight ", printable(name), ' ', weight.shape_,
                                     ": each part must be ", weight.dtype_,
                                     in_parts ? " with one dimension" : " with this shape",
                                     ": a part is ", part.dtype(), ' ', part.shape()));
            count += part.numel();
            weight.parts_.push_back(part);
        }
        if (count < numel(weight.shape_))
            throw ValueError(str("the frozen weight ", printable(name), ' ', weight.shape_,
                                 " has only ", count, " elements"));
        add(name, std::move(weight));
    }
}

// Adds weights under their second names, and weights that are only in the states of the model.
// Weights without elements are added to missing_.
void DeepSpeedCheckpoint::add_rest(const Tree& state) {
    if (const Tree shared = value_of(state, "shared_params"); !shared.is_null())
        for (const auto& [name, other] : shared.entries())
            if (const auto found = weights_.find(other.string()); found != weights_.end())
                weights_.emplace(name, found->second);
    const Tree shapes = value_of(state, "param_shapes");
    for (const auto& [name, value] : state["module"].entries()) {
        if (!value.is_tensor() || weights_.contains(name)) continue;
        // In stage 3, weights in the states of the model have no elements.
        if (value.numel() == 0 && !shapes.is_null())
            missing_.push_back(name);
        else
            add_whole(name, value.tensor(), value.dtype());
    }
}

Tensor DeepSpeedCheckpoint::read(const std::string& name) const {
    const NoGrad no_grad;
    const auto found = weights_.find(name);
    if (found == weights_.end()) fail(path_, str("contains no weight ", in_quotes(name)));
    const Weight& weight = found->second;
    const std::int64_t count = numel(weight.shape_);
    const Tensor result = Tensor::empty({count}, {.dtype = weight.dtype_});
    std::int64_t at = 0;
    for (const Tensor& part : weight.parts_) {
        const std::int64_t n = std::min(part.numel(), count - at);
        result.narrow(0, at, n).copy_(part.reshape({part.numel()}).narrow(0, 0, n));
        at += n;
    }
    for (std::size_t i = 0; i < weight.count_ && at < count; ++i) {
        const std::int64_t n = std::min(weight.length_, count - at);
        flats_[weight.first_ + i].copy(weight.offset_, result.narrow(0, at, n));
        at += n;
    }
    return result.view(weight.shape_);
}

}  // namespace axle::dist
