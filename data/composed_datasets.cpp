#include "data/composed_datasets.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <typeinfo>
#include <utility>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Datasets = std::vector<std::shared_ptr<const Dataset>>;

void check_index(const char* who, std::int64_t index, std::int64_t size) {
    if (index < 0 || index >= size)
        throw IndexError(str(who, ": index ", index, " is out of range for ", size, " samples"));
}

// Returns the pointer to a dataset. Throws UsageError, which calls the dataset `name`, if it is
// null.
const std::shared_ptr<const Dataset>& checked(const char* who, const DatasetRef& dataset,
                                              const std::string& name = "the dataset") {
    if (!dataset.pointer()) throw UsageError(str(who, ": ", name, " must not be null"));
    return dataset.pointer();
}

// Returns the datasets of an epoch, or an empty list if no dataset depends on the epoch.
Datasets datasets_in_epoch(const Datasets& datasets, std::int64_t epoch) {
    Datasets in_epoch = datasets;
    bool differ = false;
    for (auto& dataset : in_epoch)
        if (auto other = dataset->in_epoch(epoch)) {
            dataset = std::move(other);
            differ = true;
        }
    if (!differ) in_epoch.clear();
    return in_epoch;
}

bool have_uniform_shapes(const Datasets& datasets) {
    return std::all_of(datasets.begin(), datasets.end(),
                       [](const auto& dataset) { return dataset->has_uniform_shapes(); });
}

// Formats the lengths of random_split().
std::string text_of(const std::vector<Scalar>& lengths) {
    std::string text;
    for (const Scalar& length : lengths)
        text += str(text.empty() ? "[" : ", ",
                    length.is_integral() ? str(length.to_int64()) : str(length.to_double()));
    return text + "]";
}

// Returns the numbers of samples for fractions of n samples. The samples that remain after rounding
// down go to the first parts. Throws ValueError unless the fractions are in [0, 1] and add up to 1.
std::vector<std::int64_t> sizes_of_fractions(const std::vector<Scalar>& lengths, std::int64_t n) {
    std::vector<std::int64_t> sizes;
    double sum = 0;
    std::int64_t left = n;
    for (const Scalar& length : lengths) {
        const double fraction = length.to_double();
        if (!(fraction >= 0 && fraction <= 1))
            throw ValueError(str("random_split: each fraction must be in [0, 1]: the lengths are ",
                                 text_of(lengths)));
        sum += fraction;
        sizes.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(n) * fraction)));
        left -= sizes.back();
    }
    if (std::abs(sum - 1) > 1e-9 || left < 0)
        throw ValueError(str("random_split: the fractions must add up to 1: ", text_of(lengths),
                             " add up to ", sum));
    const std::int64_t parts = std::ssize(sizes);
    for (std::int64_t i = 0; i < parts; ++i)
        sizes[static_cast<std::size_t>(i)] += left / parts + (i < left % parts ? 1 : 0);
    return sizes;
}

std::vector<std::int64_t> sizes_of_integers(const std::vector<Scalar>& lengths, std::int64_t n) {
    std::vector<std::int64_t> sizes;
    std::int64_t left = n;
    for (const Scalar& length : lengths) {
        sizes.push_back(length.to_int64());
        if (sizes.back() < 0)
            throw ValueError(str("random_split: lengths must not be negative: the lengths are ",
                                 text_of(lengths)));
        left = left < sizes.back() ? -1 : left - sizes.back();
        if (left < 0) break;
    }
    if (left != 0)
        throw ValueError(
            str("random_split: the lengths must add up to the number of samples: the "
                "lengths are ",
                text_of(lengths), ", the dataset has ", n, " samples"));
    return sizes;
}

}  // namespace

Subset::Subset(const DatasetRef& dataset, std::vector<std::int64_t> indices)
    : dataset_(checked("Subset", dataset)) {
    const std::int64_t n = dataset_->size();
    for (std::size_t i = 0; i < indices.size(); ++i)
        if (indices[i] < 0 || indices[i] >= n)
            throw IndexError(str("Subset: index ", indices[i], " at position ", i,
                                 " is out of range for a dataset of ", n, " samples"));
    indices_ = std::make_shared<const std::vector<std::int64_t>>(std::move(indices));
}

std::int64_t Subset::whole_index(std::int64_t index) const {
    check_index("Subset", index, size());
    return (*indices_)[static_cast<std::size_t>(index)];
}

Tree Subset::get(std::int64_t index) const { return dataset_->get(whole_index(index)); }

std::optional<Tree> Subset::get_window(std::int64_t index, const std::string& key,
                                       const ChooseWindow& choose) const {
    const Dataset& self = *this;  // a derived class can have another get()
    if (typeid(self) != typeid(Subset)) return std::nullopt;
    return dataset_->get_window(whole_index(index), key, choose);
}

Tree Subset::get_batch(std::span<const std::int64_t> indices) const {
    std::vector<std::int64_t> whole;
    whole.reserve(indices.size());
    for (const std::int64_t index : indices) whole.push_back(whole_index(index));
    return dataset_->get_batch(whole);
}

std::shared_ptr<const Dataset> Subset::in_epoch(std::int64_t epoch) const {
    auto dataset = dataset_->in_epoch(epoch);
    if (!dataset) return nullptr;
    const auto subset = std::make_shared<Subset>(*this);
    subset->dataset_ = std::move(dataset);
    return subset;
}

std::vector<Subset> random_split(const DatasetRef& dataset, const std::vector<Scalar>& lengths,
                                 std::uint64_t seed) {
    const std::int64_t n = checked("random_split", dataset)->size();
    if (lengths.empty())
        throw ValueError("random_split: needs at least one length: the list is empty");
    const auto is_integral = [](const Scalar& length) { return length.is_integral(); };
    const bool integers = std::all_of(lengths.begin(), lengths.end(), is_integral);
    if (!integers && std::any_of(lengths.begin(), lengths.end(), is_integral))
        throw ValueError(
            str("random_split: all lengths must be numbers of samples (integers), or "
                "all must be fractions (floating-point numbers): the lengths are ",
                text_of(lengths)));
    const auto sizes = integers ? sizes_of_integers(lengths, n) : sizes_of_fractions(lengths, n);
    const std::vector<std::int64_t> order = randperm(n, seed);
    std::vector<Subset> parts;
    auto begin = order.begin();
    for (const std::int64_t size : sizes) {
        parts.emplace_back(dataset, std::vector<std::int64_t>(begin, begin + size));
        begin += size;
    }
    return parts;
}

ConcatDataset::ConcatDataset(const std::vector<DatasetRef>& datasets) {
    if (datasets.empty())
        throw ValueError("ConcatDataset: needs at least one dataset: the list is empty");
    std::int64_t end = 0;
    for (const DatasetRef& dataset : datasets) {
        datasets_.push_back(checked("ConcatDataset", dataset, str("dataset ", datasets_.size())));
        end += datasets_.back()->size();
        ends_.push_back(end);
    }
}

Tree ConcatDataset::get(std::int64_t index) const {
    check_index("ConcatDataset", index, size());
    const auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) -
                                            ends_.begin());
    return datasets_[i]->get(i == 0 ? index : index - ends_[i - 1]);
}

bool ConcatDataset::has_uniform_shapes() const { return have_uniform_shapes(datasets_); }

std::shared_ptr<const Dataset> ConcatDataset::in_epoch(std::int64_t epoch) const {
    Datasets datasets = datasets_in_epoch(datasets_, epoch);
    if (datasets.empty()) return nullptr;
    const auto concatenated = std::make_shared<ConcatDataset>(*this);
    concatenated->datasets_ = std::move(datasets);
    return concatenated;
}

StackDataset::StackDataset(const std::vector<std::pair<std::string, DatasetRef>>& datasets) {
    for (const auto& [key, dataset] : datasets) {
        if (std::find(keys_.begin(), keys_.end(), key) != keys_.end())
            throw ValueError(str("StackDataset: the key '", key, "' occurs twice"));
        keys_.push_back(key);
        add(str("'", key, "'"), dataset);
    }
    if (datasets.empty())
        throw ValueError("StackDataset: needs at least one dataset: the list is empty");
}

StackDataset::StackDataset(const std::vector<DatasetRef>& datasets) {
    for (const DatasetRef& dataset : datasets) add(str(datasets_.size()), dataset);
    if (datasets.empty())
        throw ValueError("StackDataset: needs at least one dataset: the list is empty");
}

// Adds a dataset. `name` names it in error messages.
void StackDataset::add(const std::string& name, const DatasetRef& dataset) {
    const std::int64_t size = checked("StackDataset", dataset, "dataset " + name)->size();
    if (datasets_.empty()) size_ = size;
    if (size != size_)
        throw ValueError(str("StackDataset: all datasets must have the same size: the first has ",
                             size_, " samples, dataset ", name, " has ", size));
    datasets_.push_back(dataset.pointer());
}

void StackDataset::check_index(std::int64_t index) const {
    data::check_index("StackDataset", index, size_);
}

// Returns a map or list of value(dataset) for each dataset.
Tree StackDataset::joined(const std::function<Tree(const Dataset&)>& value) const {
    Tree result = keys_.empty() ? Tree::list() : Tree::map();
    for (std::size_t i = 0; i < datasets_.size(); ++i) {
        if (keys_.empty()) {
            result.push_back(value(*datasets_[i]));
        } else {
            result.set(keys_[i], value(*datasets_[i]));
        }
    }
    return result;
}

Tree StackDataset::get(std::int64_t index) const {
    check_index(index);
    return joined([&](const Dataset& dataset) { return dataset.get(index); });
}

Tree StackDataset::get_batch(std::span<const std::int64_t> indices) const {
    for (const std::int64_t index : indices) check_index(index);
    return joined([&](const Dataset& dataset) { return dataset.get_batch(indices); });
}

bool StackDataset::has_uniform_shapes() const { return have_uniform_shapes(datasets_); }

std::shared_ptr<const Dataset> StackDataset::in_epoch(std::int64_t epoch) const {
    Datasets datasets = datasets_in_epoch(datasets_, epoch);
    if (datasets.empty()) return nullptr;
    const auto stacked = std::make_shared<StackDataset>(*this);
    stacked->datasets_ = std::move(datasets);
    return stacked;
}

MapDataset::MapDataset(const DatasetRef& dataset, std::function<Tree(Tree)> function)
    : dataset_(checked("MapDataset", dataset)), function_(std::move(function)) {
    if (!function_) throw UsageError("MapDataset: the function must not be empty");
}

std::shared_ptr<const Dataset> MapDataset::in_epoch(std::int64_t epoch) const {
    auto dataset = dataset_->in_epoch(epoch);
    if (!dataset) return nullptr;
    return std::make_shared<MapDataset>(std::move(dataset), function_);
}

Subset filter(const DatasetRef& dataset, const std::function<bool(const Tree&)>& function) {
    const std::int64_t n = checked("filter", dataset)->size();
    if (!function) throw UsageError("filter: the function must not be empty");
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < n; ++i) {
        try {
            if (function(dataset.pointer()->get(i))) indices.push_back(i);
        } catch (...) {
            rethrow_from(str("filter: sample ", i));
        }
    }
    return {dataset, std::move(indices)};
}

}  // namespace axle::data
