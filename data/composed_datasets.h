// Datasets made of other datasets, with the names of torch.utils.data and of Hugging Face's
// datasets.
//
//     data::ConcatDataset all({old_images, new_images});
//     auto parts = data::random_split(all, {0.9, 0.1});
//     data::DataLoader train_loader(parts[0], {.batch_size = 32, .shuffle = true});
//
// The datasets of this file pass in_epoch() and has_uniform_shapes() on to the datasets that they
// are made of. The sizes of those datasets must not change. A dataset that is passed as a variable
// must outlive the dataset that is made of it (DatasetRef).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/scalar.h"
#include "core/tree/tree.h"
#include "data/dataset.h"
#include "data/dataset_ref.h"

namespace axle::data {

// The samples of a dataset at some indices, in the order of the indices (torch.utils.data.Subset).
// An index can occur more than once.
class Subset : public Dataset {
  public:
    // Throws UsageError if the dataset is null, and IndexError unless each index is in
    // [0, dataset.size()).
    Subset(const DatasetRef& dataset, std::vector<std::int64_t> indices);
    std::int64_t size() const override { return std::ssize(*indices_); }
    // Throw IndexError unless each index is in [0, size()).
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    std::optional<Tree> get_window(std::int64_t index, const std::string& key,
                                   const ChooseWindow& choose) const override;
    bool has_uniform_shapes() const override { return dataset_->has_uniform_shapes(); }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;
    // Returns the indices of the samples in the whole dataset.
    const std::vector<std::int64_t>& indices() const { return *indices_; }

  private:
    std::int64_t whole_index(std::int64_t index) const;  // throws IndexError

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const std::vector<std::int64_t>> indices_;
};

// Divides the samples at random into subsets that have no sample in common
// (torch.utils.data.random_split). Either all lengths are integers, the numbers of samples, or all
// are floating-point numbers, the fractions of the samples. The number of samples of a fraction is
// rounded down; the samples that are then left are added one by one to the first subsets. The
// subsets are the same as in PyTorch with generator=torch.Generator().manual_seed(seed). All
// processes, and all runs that resume each other, must use the same seed, so that they have the
// same subsets.
//
// Throws UsageError if the dataset is null. Throws ValueError if there are no lengths, if integers
// and fractions are mixed, if a length is negative, NaN or infinite, if integers do not add up to
// dataset.size(), or if fractions do not add up to 1, with a tolerance of 1e-9.
std::vector<Subset> random_split(const DatasetRef& dataset, const std::vector<Scalar>& lengths,
                                 std::uint64_t seed = 0);

// The samples of several datasets one after another (torch.utils.data.ConcatDataset).
class ConcatDataset : public Dataset {
  public:
    // Throws ValueError if there are no datasets, and UsageError if a dataset is null.
    explicit ConcatDataset(const std::vector<DatasetRef>& datasets);
    std::int64_t size() const override { return ends_.back(); }
    // Throws IndexError unless 0 <= index < size().
    Tree get(std::int64_t index) const override;
    bool has_uniform_shapes() const override;
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    std::vector<std::shared_ptr<const Dataset>> datasets_;
    // For each dataset, the sum of its size and the sizes of the datasets before it.
    std::vector<std::int64_t> ends_;
};

// Datasets of the same size side by side (torch.utils.data.StackDataset). Sample i consists of
// sample i of each dataset:
//     data::StackDataset({{"image", images}, {"text", texts}})   // a sample is a map
//     data::StackDataset({images, texts})                        // a sample is a list
class StackDataset : public Dataset {
  public:
    // Throw ValueError if there are no datasets, if their sizes differ, or if a key occurs twice;
    // and UsageError if a dataset is null.
    explicit StackDataset(const std::vector<std::pair<std::string, DatasetRef>>& datasets);
    explicit StackDataset(const std::vector<DatasetRef>& datasets);
    std::int64_t size() const override { return size_; }
    // Throws IndexError unless 0 <= index < size().
    Tree get(std::int64_t index) const override;
    // Returns a map or list with the batch of each dataset. Throws IndexError unless each index is
    // in [0, size()).
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    bool has_uniform_shapes() const override;
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    void add(const std::string& name, const DatasetRef& dataset);
    void check_index(std::int64_t index) const;  // throws IndexError
    Tree joined(const std::function<Tree(const Dataset& dataset)>& value) const;

    std::vector<std::string> keys_;  // empty if a sample is a list
    std::vector<std::shared_ptr<const Dataset>> datasets_;
    std::int64_t size_ = 0;
};

// The samples of a dataset, changed by a function. Sample i is function(dataset.get(i)), which is
// computed each time the sample is read.
class MapDataset : public Dataset {
  public:
    // The function is called concurrently. It must depend only on the sample. Throws UsageError if
    // the dataset is null or the function is empty.
    MapDataset(const DatasetRef& dataset, std::function<Tree(Tree sample)> function);
    std::int64_t size() const override { return dataset_->size(); }
    Tree get(std::int64_t index) const override { return function_(dataset_->get(index)); }
    bool has_uniform_shapes() const override { return dataset_->has_uniform_shapes(); }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    std::shared_ptr<const Dataset> dataset_;
    std::function<Tree(Tree)> function_;
};

// Returns the samples of a dataset, changed by a function. Throws the errors of MapDataset.
//     data::map(set, [](Tree sample) { sample["x"] = sample["x"].to(f32); return sample; })
inline MapDataset map(const DatasetRef& dataset, std::function<Tree(Tree sample)> function) {
    return {dataset, std::move(function)};
}

// Returns the samples for which the function returns true, in their order. Calls the function once
// for each sample, on this thread, before it returns. Throws UsageError if the dataset is null or
// the function is empty. Exceptions of the dataset and of the function are rethrown with the index
// of the sample.
Subset filter(const DatasetRef& dataset, const std::function<bool(const Tree& sample)>& function);

// Returns the samples at some indices, in the order of the indices. Throws the errors of Subset.
inline Subset select(const DatasetRef& dataset, std::vector<std::int64_t> indices) {
    return {dataset, std::move(indices)};
}

}  // namespace axle::data
