// Loaders beside each other; mostly for the thread sanitizer.
#include <thread>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/loading/loader.h"

namespace axle::data {
namespace {

TensorDataset numbers(std::int64_t n) {
    return TensorDataset(Tree{{"x", arange(n).reshape({n, 1})}});
}

double sum_of_pass(DataLoader& loader) {
    double total = 0;
    for (auto& batch : loader) total += sum(batch["x"].tensor()).item();
    return total;
}

TEST(DataLoaders, TwoOfOneDatasetGoOnTogetherInOneLoop) {
    const TensorDataset dataset = numbers(60);
    DataLoader a(dataset, {.batch_size = 3, .shuffle = true, .num_workers = 2, .seed = 1});
    DataLoader b(dataset, {.batch_size = 3, .shuffle = true, .num_workers = 3, .seed = 2});
    for (int epoch = 0; epoch < 5; ++epoch) {
        double sums[2] = {0, 0};
        auto other = b.begin();
        for (auto& batch : a) {
            sums[0] += sum(batch["x"].tensor()).item();
            sums[1] += sum((*other)["x"].tensor()).item();
            ++other;
        }
        EXPECT_EQ(sums[0], 1770);
        EXPECT_EQ(sums[1], 1770);
    }
}

TEST(DataLoaders, EachMayHaveALoopOnAThreadOfItsOwn) {
    const TensorDataset dataset = numbers(60);
    std::vector<std::thread> loops;
    loops.reserve(4);
    for (std::uint64_t seed = 0; seed < 4; ++seed)
        loops.emplace_back([&dataset, seed] {
            DataLoader loader(dataset,
                              {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = seed});
            for (int epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(sum_of_pass(loader), 1770);
        });
    for (std::thread& loop : loops) loop.join();
}

TEST(DataLoaders, ABatchIsForKeepsWhileWorkersMakeOthers) {
    DataLoader loader(numbers(60), {.batch_size = 4, .num_workers = 2});
    std::vector<Tensor> kept;
    for (auto& batch : loader) kept.push_back(batch["x"]);
    for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_EQ(kept[i].to_vector()[0], static_cast<double>(4 * i));
}

TEST(DataLoaders, OneMayRunInTheDatasetOfAnother) {
    const TensorDataset inner = numbers(8);
    DataLoader outer(
        from_function(
            6,
            [&](std::int64_t i) {
                DataLoader loader(inner, {.batch_size = 3, .num_workers = 2});
                return Tree{{"x", full({1}, sum_of_pass(loader) * static_cast<double>(i))}};
            }),
        {.batch_size = 2, .num_workers = 2});
    EXPECT_EQ(sum_of_pass(outer), 28 * 15);
}

}  // namespace
}  // namespace axle::data
