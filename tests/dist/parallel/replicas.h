// Models that several ranks train, and checks of their gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "dist/parallel/data_parallel.h"
#include "nn/layers/mlp.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/sanitized.h"

namespace axle::tests {

using Group = std::shared_ptr<dist::ProcessGroup>;

// The numbers of ranks that train one model together.
inline const std::vector<int> kGroupSizes =
    kSanitized ? std::vector<int>{2, 3} : std::vector<int>{2, 3, 4, 6, 8};
// Returns the number of attention heads of a model that is divided among `ranks` ranks. The number
// is 4 for 2 and 4 ranks, 6 for 3 and 6, and 8 for 8.
inline std::int64_t heads_for(int ranks) { return ranks < 4 ? 2 * ranks : ranks; }

// Returns an f64 model, with the same initial values in every call.
inline nn::Mlp small_mlp(const std::vector<std::int64_t>& widths = {5, 7, 6, 2}) {
    manual_seed(3);
    nn::Mlp model(widths);
    model.to(f64);
    return model;
}

// Returns this rank's part of the rows of x.
inline Tensor part(const Tensor& x, const dist::ProcessGroup& group) {
    const std::int64_t rows = x.size(0) / group.size();
    return x.narrow(0, group.rank() * rows, rows);
}

// Expects the same names in the same order, and the same values.
inline void expect_same_state(const nn::StateDict& actual, const nn::StateDict& expected,
                              double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        SCOPED_TRACE(expected[i].first);
        EXPECT_EQ(actual[i].first, expected[i].first);
        expect_close(actual[i].second, expected[i].second, tolerance);
    }
}

// Returns copies of the gradients, with undefined tensors for parameters without a gradient.
inline std::vector<Tensor> gradients_of(const nn::Module& model) {
    std::vector<Tensor> result;
    for (const Tensor& p : model.parameters())
        result.push_back(p.grad().defined() ? p.grad().clone() : Tensor());
    return result;
}

inline void expect_gradients(const nn::Module& model, const std::vector<Tensor>& expected,
                             double tolerance = 1e-12,
                             std::source_location at = std::source_location::current()) {
    const nn::StateDict named = model.named_parameters();
    ASSERT_EQ(named.size(), expected.size());
    for (std::size_t i = 0; i < named.size(); ++i) {
        SCOPED_TRACE(named[i].first);
        expect_close(named[i].second.grad(), expected[i], tolerance, at);
    }
}

// Returns clones of the model, one for each rank.
template <class M>
std::vector<M> clones_of(const M& model, int count) {
    std::vector<M> result;
    result.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) result.push_back(model.clone());
    return result;
}

// A bucket size in MiB that holds only a few numbers, so that even a small model has several
// buckets.
inline constexpr double kTinyBucket = 100.0 / (1 << 20);

}  // namespace axle::tests
