#include "data/dataset.h"

#include <exception>
#include <new>
#include <optional>

#include "data/files/rows.h"
#include "data/loading/collate.h"
#include "kernels/error.h"

namespace axle::data {
Tree Dataset::get_batch(std::span<const std::int64_t> indices) const {
    return collate(get_samples(*this, indices));
}

std::optional<Tree> Dataset::get_window(std::int64_t, const std::string&,
                                        const ChooseWindow&) const {
    return std::nullopt;
}

std::shared_ptr<const Dataset> Dataset::in_epoch(std::int64_t) const { return nullptr; }

std::vector<Tree> get_samples(const Dataset& dataset, std::span<const std::int64_t> indices) {
    std::vector<Tree> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) {
        try {
            samples.push_back(dataset.get(index));
        } catch (...) {
            rethrow_from(str("sample ", index));
        }
    }
    return samples;
}

TensorDataset::TensorDataset(Tree tensors) : tensors_(std::move(tensors)) {
    std::optional<std::int64_t> rows;
    for_each_tensor(tensors_, [&](const Tensor& t) {
        if (t.dim() == 0)
            throw ShapeError(
                str("TensorDataset: each tensor must have rows, but a tensor is 0-d: ", tensors_));
        if (rows && *rows != t.size(0))
            throw ShapeError(str("TensorDataset: tensors have different numbers of rows: ", *rows,
                                 " and ", t.size(0), " in ", tensors_));
        rows = t.size(0);
    });
    if (!rows) throw ValueError(str("TensorDataset: the tree has no tensors: ", tensors_));
    size_ = *rows;
}

void TensorDataset::check_index(std::int64_t index) const {
    if (index < 0 || index >= size_)
        throw IndexError(
            str("TensorDataset: index ", index, " is out of range for ", size_, " samples"));
}

Tree TensorDataset::get(std::int64_t index) const {
    check_index(index);
    return map_tensors(tensors_, [&](const Tensor& t) { return t.select(0, index); });
}

Tree TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
    for (const std::int64_t index : indices) check_index(index);
    return map_tensors(tensors_, [&](const Tensor& t) { return select_rows(t, indices); });
}

Tree TensorDataset::get_batch(std::span<const std::int64_t> indices, const std::string& key,
                              const std::function<Tensor(const Tensor&)>& make) const {
    for (const std::int64_t index : indices) check_index(index);
    const Tensor rows = tensors_[key].tensor();
    Tree others = tensors_;
    others[key] = Tree();
    Tree batch = map_tensors(others, [&](const Tensor& t) { return select_rows(t, indices); });
    batch[key] = make(rows);
    return batch;
}

FunctionDataset::FunctionDataset(std::int64_t size, std::function<Tree(std::int64_t)> get)
    : size_(size), get_(std::move(get)) {
    if (size < 0)
        throw ValueError(
            str("FunctionDataset: the number of samples must not be negative: ", size));
    if (!get_) throw UsageError("FunctionDataset: the function must not be empty");
}

void rethrow_from(const std::string& where) {
    const std::string prefix = where + ": ";
    try {
        throw;
    } catch (const std::bad_alloc&) {
        throw;  // the exception has no text to extend
    } catch (const OutOfMemory& e) {
        throw OutOfMemory(prefix + e.what(), e.requested, e.in_use, e.cached, e.peak);
    } catch (const ShapeError& e) {
        throw ShapeError(prefix + e.what());
    } catch (const DTypeError& e) {
        throw DTypeError(prefix + e.what());
    } catch (const DeviceError& e) {
        throw DeviceError(prefix + e.what());
    } catch (const IndexError& e) {
        throw IndexError(prefix + e.what());
    } catch (const ValueError& e) {
        throw ValueError(prefix + e.what());
    } catch (const NumericsError& e) {
        throw NumericsError(prefix + e.what());
    } catch (const FileError& e) {
        throw FileError(prefix + e.what());
    } catch (const CudaError& e) {
        throw CudaError(prefix + e.what());
    } catch (const CommError& e) {
        throw CommError(prefix + e.what());
    } catch (const UsageError& e) {
        throw UsageError(prefix + e.what());
    } catch (const std::exception& e) {
        std::throw_with_nested(Error(prefix + e.what()));
    }
}

}  // namespace axle::data
