#include "data/dataset.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "core/ops.h"
#include "data/collate.h"
#include "kernels/error.h"

namespace axle::inline v0::data {
namespace {

// Rows of a length that the compiler knows. They lie anywhere: memory is asked for them early.
template <std::size_t N>
void copy_short_rows(const std::byte* from, std::byte* to, std::span<const std::int64_t> indices) {
    constexpr std::size_t kAhead = 16;
    const auto row = [&](std::size_t i) { return from + static_cast<std::size_t>(indices[i]) * N; };
    for (std::size_t i = 0; i < indices.size(); ++i, to += N) {
        if (i + kAhead < indices.size()) __builtin_prefetch(row(i + kAhead));
        std::memcpy(to, row(i), N);
    }
}

void copy_rows(const std::byte* from, std::byte* to, std::size_t bytes,
               std::span<const std::int64_t> indices) {
    switch (bytes) {
        case 1:
            return copy_short_rows<1>(from, to, indices);
        case 4:
            return copy_short_rows<4>(from, to, indices);
        case 8:
            return copy_short_rows<8>(from, to, indices);
        case 16:
            return copy_short_rows<16>(from, to, indices);
        case 32:
            return copy_short_rows<32>(from, to, indices);
        case 64:
            return copy_short_rows<64>(from, to, indices);
        default:
            for (const std::int64_t index : indices) {
                std::memcpy(to, from + static_cast<std::size_t>(index) * bytes, bytes);
                to += bytes;
            }
    }
}

// Whole rows are copied as bytes: rows are mostly long, and index_select asks for each element.
Tensor rows_of(const Tensor& t, std::span<const std::int64_t> indices) {
    const auto count = static_cast<std::int64_t>(indices.size());
    if (!t.device().is_cpu() || !t.is_contiguous() || t.requires_grad()) {
        Tensor rows = empty({count}, {.dtype = i64, .device = Device::cpu()});
        std::copy(indices.begin(), indices.end(), rows.data<std::int64_t>());
        return index_select(t, 0, rows.to(t.device()));
    }
    Shape shape = t.shape();
    shape[0] = count;
    Tensor batch = empty(shape, {.dtype = t.dtype()});
    if (batch.numel() == 0) return batch;
    const auto bytes = static_cast<std::size_t>(batch.numel() / count * size_of(t.dtype()));
    copy_rows(static_cast<const std::byte*>(t.raw_data()),
              static_cast<std::byte*>(batch.raw_data()), bytes, indices);
    return batch;
}

}  // namespace

Tree Dataset::get_batch(std::span<const std::int64_t> indices) const {
    return collate(get_samples(*this, indices));
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
        if (t.dim() == 0) throw ShapeError("TensorDataset: a 0-d tensor has no rows");
        if (rows && *rows != t.size(0))
            throw ShapeError(str("TensorDataset: numbers of rows differ: ", *rows, " and ",
                                 t.size(0), " in ", tensors_));
        rows = t.size(0);
    });
    if (!rows) throw ValueError(str("TensorDataset: there is no tensor in ", tensors_));
    size_ = *rows;
}

void TensorDataset::check_index(std::int64_t index) const {
    if (index < 0 || index >= size_)
        throw IndexError(str("TensorDataset: no sample ", index, " of ", size_));
}

Tree TensorDataset::get(std::int64_t index) const {
    check_index(index);
    return map_tensors(tensors_, [&](const Tensor& t) { return t.select(0, index); });
}

Tree TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
    for (const std::int64_t index : indices) check_index(index);
    return map_tensors(tensors_, [&](const Tensor& t) { return rows_of(t, indices); });
}

FunctionDataset::FunctionDataset(std::int64_t size, std::function<Tree(std::int64_t)> get)
    : size_(size), get_(std::move(get)) {
    if (size < 0) throw ValueError(str("from_function: negative number of samples: ", size));
    if (!get_) throw UsageError("from_function: there is no function");
}

void rethrow_from(const std::string& where) {
    const std::string before = where + ": ";
    try {
        throw;
    } catch (const OutOfMemory& e) {
        throw OutOfMemory(before + e.what(), e.requested, e.in_use, e.cached, e.peak);
    } catch (const ShapeError& e) {
        throw ShapeError(before + e.what());
    } catch (const DTypeError& e) {
        throw DTypeError(before + e.what());
    } catch (const DeviceError& e) {
        throw DeviceError(before + e.what());
    } catch (const IndexError& e) {
        throw IndexError(before + e.what());
    } catch (const ValueError& e) {
        throw ValueError(before + e.what());
    } catch (const FileError& e) {
        throw FileError(before + e.what());
    } catch (const CudaError& e) {
        throw CudaError(before + e.what());
    } catch (const CommError& e) {
        throw CommError(before + e.what());
    } catch (const UsageError& e) {
        throw UsageError(before + e.what());
    } catch (const std::exception& e) {
        std::throw_with_nested(Error(before + e.what()));
    }
}

}  // namespace axle::inline v0::data
