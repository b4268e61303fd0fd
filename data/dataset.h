// Dataset: random access to samples by index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::data {

// Base class of datasets. The workers of a loader call get and get_batch concurrently. A sample
// should depend only on its index and on in_epoch's epoch, and random numbers on a seed and these
// two; otherwise orders and resumed runs are not reproducible.
class Dataset {
  public:
    virtual ~Dataset() = default;
    virtual std::int64_t size() const = 0;
    // Returns a sample. index is in [0, size()).
    virtual Tree get(std::int64_t index) const = 0;
    // Returns the batch that a loader without collate_fn yields: by default collate() of the
    // samples. Override it if a batch can be built directly.
    virtual Tree get_batch(std::span<const std::int64_t> indices) const;
    // Returns the dataset as seen in that epoch, which must be a pure function of the epoch.
    // Override it if samples differ between epochs. A loader calls it before each pass, on the
    // loop's thread, and reads the pass from the result. The result may refer to this dataset and
    // does not outlive it. nullptr means that all epochs are equal.
    virtual std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const;
};

// Returns the samples at these indices. Exceptions name the sample.
std::vector<Tree> get_samples(const Dataset& dataset, std::span<const std::int64_t> indices);

// The rows of a tree of tensors: TensorDataset(Tree{{"image", images}, {"label", labels}}). All
// tensors must have the same size in dimension 0 (ShapeError).
class TensorDataset : public Dataset {
  public:
    explicit TensorDataset(Tree tensors);
    std::int64_t size() const override { return size_; }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    // Like get_batch above, but the batch of entry `key` is make(all rows of that tensor).
    Tree get_batch(std::span<const std::int64_t> indices, const std::string& key,
                   const std::function<Tensor(const Tensor& rows)>& make) const;

  private:
    void check_index(std::int64_t index) const;  // IndexError

    Tree tensors_;
    std::int64_t size_ = 0;
};

// A dataset whose samples are computed by a function of the index.
class FunctionDataset : public Dataset {
  public:
    FunctionDataset(std::int64_t size, std::function<Tree(std::int64_t index)> get);
    std::int64_t size() const override { return size_; }
    Tree get(std::int64_t index) const override { return get_(index); }

  private:
    std::int64_t size_;
    std::function<Tree(std::int64_t)> get_;
};

inline FunctionDataset from_function(std::int64_t size, std::function<Tree(std::int64_t)> get) {
    return {size, std::move(get)};
}

// Rethrows the current exception with `where: ` before its text. Must be called in a catch block.
// Axle's errors keep their type; another std::exception is nested in an Error
// (std::rethrow_if_nested).
[[noreturn]] void rethrow_from(const std::string& where);

}  // namespace axle::data
