// DatasetRef: a dataset as an argument, owned or referenced.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace axle::data {

class Dataset;
class IterableDataset;

// A dataset argument, with the ownership rules of DataLoader. A variable is referenced and must
// outlive the object that uses it, unless its class has share(), as Table does; a temporary is
// moved into a shared pointer; a shared pointer is shared. pointer() is null only if the argument
// was a null pointer.
template <class Base>
class BasicDatasetRef {
  public:
    template <class D>
        requires std::derived_from<std::remove_cvref_t<D>, Base>
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload,google-explicit-constructor)
    BasicDatasetRef(D&& dataset) {
        if constexpr (std::is_lvalue_reference_v<D>) {
            if constexpr (requires { dataset.share(); }) {
                pointer_ = dataset.share();
                // share() of a base class copies only the base class.
                if (pointer_ != nullptr && typeid(*pointer_) != typeid(dataset)) pointer_ = nullptr;
            }
            if (pointer_ == nullptr) pointer_ = {std::shared_ptr<void>(), &dataset};
        } else {
            pointer_ = std::make_shared<std::remove_cv_t<D>>(std::forward<D>(dataset));
        }
    }
    template <class D>
        requires std::derived_from<std::remove_cv_t<D>, Base>
    BasicDatasetRef(std::shared_ptr<D> dataset)  // NOLINT(google-explicit-constructor)
        : pointer_(std::move(dataset)) {}

    const std::shared_ptr<const Base>& pointer() const { return pointer_; }

  private:
    std::shared_ptr<const Base> pointer_;
};

using DatasetRef = BasicDatasetRef<Dataset>;
using IterableDatasetRef = BasicDatasetRef<IterableDataset>;

}  // namespace axle::data
