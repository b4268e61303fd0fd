// Dataset: random access to samples by index. Also declares datasets of tensors and of functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "data/image_window.h"

namespace axle::data {

// Base class of datasets. The workers of a loader call get() and get_batch() concurrently. So that
// runs are reproducible and resumable, a sample must depend only on its index and the epoch
// (in_epoch()). Its random numbers may also depend on a seed.
class Dataset {
  public:
    virtual ~Dataset() = default;
    virtual std::int64_t size() const = 0;
    // Returns the sample at an index, which must be in [0, size()).
    virtual Tree get(std::int64_t index) const = 0;
    // Returns the batch of the samples at `indices`. Loaders without collate_fn call this function.
    // The default implementation calls get() and collate(). Override it if a batch can be built
    // faster.
    virtual Tree get_batch(std::span<const std::int64_t> indices) const;
    // Returns the sample at an index in which the image `key`, a tensor [..., height, width], has
    // only the pixels of the window that `choose` returns for its size. The default is nullopt:
    // get() is called instead. Override it if a part of an image can be read faster than the whole;
    // TransformedDataset calls it if its transform begins with RandomResizedCrop. If the result is
    // nullopt, `choose` must not have been called.
    virtual std::optional<Tree> get_window(std::int64_t index, const std::string& key,
                                           const ChooseWindow& choose) const;
    // Returns whether all samples have the same shapes, so that they can be collated without a
    // transform. If not, TransformedDataset transforms samples one by one and collates the results.
    virtual bool has_uniform_shapes() const { return true; }
    // Returns the dataset to read in an epoch, or nullptr (the default) if the samples are the same
    // in all epochs. The returned dataset must depend only on the epoch. It may refer to this
    // dataset, which outlives it. A loader calls in_epoch() at the start of each pass, on the
    // thread of the loop.
    virtual std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const;
    // Returns a copy that shares the samples, if copies are cheap, or nullptr (the default).
    // Loaders and datasets that get this dataset by reference keep the copy, so that this dataset
    // need not outlive them. The copy must have the type of this dataset; otherwise it is not used.
    virtual std::shared_ptr<const Dataset> share() const { return nullptr; }
};

// Returns the samples at `indices`. The messages of exceptions contain the index of the sample.
std::vector<Tree> get_samples(const Dataset& dataset, std::span<const std::int64_t> indices);

// A dataset whose samples are the rows of tensors, for example TensorDataset(Tree{{"image",
// images}, {"label", labels}}).
class TensorDataset : public Dataset {
  public:
    // Throws ShapeError unless all tensors have the same size in dimension 0, and ValueError if
    // there are no tensors.
    explicit TensorDataset(Tree tensors);
    std::int64_t size() const override { return size_; }
    // Returns row `index` of each tensor, as a view. Throws IndexError unless 0 <= index < size().
    Tree get(std::int64_t index) const override;
    // Returns copies of the rows. Throws IndexError if an index is out of range.
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    // Returns the same batch as get_batch(indices), except for the entry `key`, which is the result
    // of make(rows). `rows` has all rows of this entry. Throws IndexError if an index is out of
    // range or the entry is missing, and ValueError if samples are not maps or the entry is not a
    // tensor.
    Tree get_batch(std::span<const std::int64_t> indices, const std::string& key,
                   const std::function<Tensor(const Tensor& rows)>& make) const;

  private:
    void check_index(std::int64_t index) const;  // throws IndexError

    Tree tensors_;
    std::int64_t size_ = 0;
};

// A dataset whose samples are computed by a function of the index, which is called concurrently.
class FunctionDataset : public Dataset {
  public:
    // Throws ValueError if size is negative, and UsageError if the function is empty.
    FunctionDataset(std::int64_t size, std::function<Tree(std::int64_t index)> get);
    std::int64_t size() const override { return size_; }
    Tree get(std::int64_t index) const override { return get_(index); }

  private:
    std::int64_t size_;
    std::function<Tree(std::int64_t)> get_;
};

// Returns a FunctionDataset. Throws the errors of its constructor.
inline FunctionDataset from_function(std::int64_t size, std::function<Tree(std::int64_t)> get) {
    return {size, std::move(get)};
}

// Rethrows the current exception with `where: ` before its text. Must be called in a catch block.
// The subclasses of Error in kernels/error.h keep their type, and an error that is derived from one
// of them is rethrown as this type. Any other std::exception, such as LinAlgError, is nested in a
// new Error (std::rethrow_if_nested). std::bad_alloc, and exceptions that are not a std::exception,
// are rethrown unchanged.
[[noreturn]] void rethrow_from(const std::string& where);

}  // namespace axle::data
