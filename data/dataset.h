// Datasets: samples by index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::inline v0::data {

// A loader's workers call get and get_batch from several threads at once. A sample should depend on
// its index and in_epoch's epoch alone: what draws random numbers does so from a seed and those, or
// orders and resumed runs are not repeatable.
class Dataset {
  public:
    virtual ~Dataset() = default;
    virtual std::int64_t size() const = 0;
    // index is in [0, size()).
    virtual Tree get(std::int64_t index) const = 0;
    // The batch that a loader without a collate_fn hands out: collate() of the samples. Override it
    // where a batch can be made at once.
    virtual Tree get_batch(std::span<const std::int64_t> indices) const;
    // Where samples differ from epoch to epoch: this dataset as that epoch sees it, a pure function
    // of the epoch. A loader asks before each pass, on the loop's thread, and reads the pass from
    // the answer. It may refer to this dataset and does not outlive it. Null: all epochs are alike.
    virtual std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const;
};

// The samples one by one; an exception says which sample it came from.
std::vector<Tree> get_samples(const Dataset& dataset, std::span<const std::int64_t> indices);

// Row i of every tensor of a tree: TensorDataset(Tree{{"image", images}, {"label", labels}}). All
// have the same size in dimension 0 (ShapeError).
class TensorDataset : public Dataset {
  public:
    explicit TensorDataset(Tree tensors);
    std::int64_t size() const override { return size_; }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    // The same, with what `make` makes of all rows of the tensor `key` in place of those gathered.
    Tree get_batch(std::span<const std::int64_t> indices, const std::string& key,
                   const std::function<Tensor(const Tensor& rows)>& make) const;

  private:
    void check_index(std::int64_t index) const;  // IndexError

    Tree tensors_;
    std::int64_t size_ = 0;
};

// A dataset made of a function of the index.
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

// To be called in a catch block: throws the exception again with `where: ` before its text. Errors
// of Axle keep their type; another std::exception becomes an Error that has it nested
// (std::rethrow_if_nested).
[[noreturn]] void rethrow_from(const std::string& where);

}  // namespace axle::inline v0::data
