#include "accel/utils/memory_utils.h"

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/memory/memory.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using accel::find_executable_batch_size;
using testing::ElementsAre;
using testing::HasSubstr;

[[noreturn]] void run_out() { throw OutOfMemory("cuda: out of memory", 1, 2, 3, 4); }

}  // namespace

// Covers 21.find_executable_batch_size.
TEST(FindExecutableBatchSize, TriesTheBatchSizesAndGivesTheResultsAndErrorsOfAccelerate) {
    const nlohmann::json recorded = vectors("find_executable_batch_size.json");
    for (const nlohmann::json& c : recorded["cases"]) {
        SCOPED_TRACE(c.dump());
        std::vector<int> tried;
        const int fits = c["fits_up_to"];
        auto find = find_executable_batch_size(
            [&](int batch_size) {
                tried.push_back(batch_size);
                if (batch_size > fits) run_out();
                return batch_size;
            },
            c["start"].get<int>());
        if (c.contains("error"))
            expect_error<OutOfMemory>(
                {"find_executable_batch_size: ", c["error"].get<std::string>().c_str()},
                [&] { return find(); });
        else
            EXPECT_EQ(find(), c["result"]);
        EXPECT_EQ(nlohmann::json(tried), c["tried"]);
    }
}

// Covers 21.find_executable_batch_size.
TEST(FindExecutableBatchSize, StartsAt128AndReturnsTheResult) {
    std::vector<int> tried;
    auto find = find_executable_batch_size([&](int batch_size, int& calls, const char* name) {
        tried.push_back(batch_size);
        ++calls;
        if (batch_size > 110) run_out();
        return str(name, batch_size);
    });
    int calls = 0;
    EXPECT_EQ(find(calls, "size "), "size 103");
    EXPECT_EQ(find(calls, "size "), "size 103");
    EXPECT_THAT(tried, ElementsAre(128, 115, 103, 103));
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(find.batch_size(), 103);
    static_assert(!std::is_invocable_v<decltype(find), int, int&, const char*>,
                  "the caller doesn't pass the batch size");
}

// Covers 21.find_executable_batch_size.
TEST(FindExecutableBatchSize, UsesTheReductionFunctionAndRejectsInvalidSizes) {
    std::vector<int> tried;
    int next = 100;
    auto find = find_executable_batch_size(
        [&](int batch_size) {
            tried.push_back(batch_size);
            if (batch_size > 80) run_out();
        },
        100, {.reduce_batch_size_fn = [&] { return next -= 10; }});
    find();
    EXPECT_THAT(tried, ElementsAre(100, 90, 80));
    auto stuck = find_executable_batch_size([](int) { run_out(); }, 5,
                                            {.reduce_batch_size_fn = [] { return 5; }});
    expect_error<ValueError>({"find_executable_batch_size", "must return a number in [0, 5)"},
                             [&] { stuck(); });
    EXPECT_THROW(static_cast<void>(find_executable_batch_size([](int) {}, -1)), ValueError);
}

// Covers 21.should_reduce_batch_size.
TEST(FindExecutableBatchSize, RetriesOnlyErrorsThatCanMeanTooLittleMemory) {
    EXPECT_TRUE(accel::should_reduce_batch_size(OutOfMemory("", 0, 0, 0, 0)));
    EXPECT_TRUE(accel::should_reduce_batch_size(std::bad_alloc()));
    EXPECT_TRUE(accel::should_reduce_batch_size(CudaError("conv: CUDNN_STATUS_NOT_SUPPORTED")));
    EXPECT_FALSE(accel::should_reduce_batch_size(CudaError("conv: an illegal address")));
    EXPECT_FALSE(accel::should_reduce_batch_size(std::runtime_error("out of memory")));
    int tries = 0;
    auto find = find_executable_batch_size([&](int) {
        ++tries;
        throw ShapeError("matmul: inner dimensions differ");
    });
    expect_error<ShapeError>({"matmul"}, [&] { find(); });
    EXPECT_EQ(tries, 1);
}

TEST(FindExecutableBatchSize, RetriesAfterAllocationFailures) {
    const HostAllocator few{
        .allocate = [](std::size_t size, std::size_t alignment, void*) -> void* {
            return size > std::size_t{1} << 20 ? nullptr : std::aligned_alloc(alignment, size);
        },
        .deallocate = [](void* block, std::size_t, void*) noexcept { std::free(block); }};
    host_memory::set_allocator(few);
    auto find = find_executable_batch_size([](int batch_size) {
        return empty({batch_size, 1 << 14}).size(0);
    });
    EXPECT_LE(find(), 16);
    host_memory::set_allocator({});
}

// Covers 21.find_executable_batch_size.
TEST(FindExecutableBatchSize, TriesTheSameBatchSizesOnAllProcesses) {
    on_ranks(3, [](const std::shared_ptr<dist::ProcessGroup>& group) {
        std::vector<int> tried;
        auto find = find_executable_batch_size(
            [&](int batch_size) {
                tried.push_back(batch_size);
                if (group->rank() == 1 && batch_size > 50) run_out();
                return batch_size;
            },
            64, {.process_group = group});
        EXPECT_EQ(find(), 45);
        EXPECT_THAT(tried, ElementsAre(64, 57, 51, 45));
    });
}

TEST(FindExecutableBatchSize, ThrowsOnAllProcessesIfOneProcessThrows) {
    const std::vector<std::exception_ptr> errors =
        outcomes(2, [](const std::shared_ptr<dist::ProcessGroup>& group) {
            auto find = find_executable_batch_size(
                [&](int) {
                    if (group->rank() == 1) throw ValueError("loss: not a number");
                },
                64, {.process_group = group});
            find();
        });
    EXPECT_THAT(text_of(errors[0]), HasSubstr("process 1: loss: not a number"));
    EXPECT_EQ(text_of(errors[1]), "loss: not a number");
}

// Covers 21.clear_device_cache, 21.release_memory, 30.17.
TEST(ReleaseMemory, DestroysObjectsAndFreesCachedMemory) {
    Tensor a = ones({1 << 20});
    auto b = std::make_unique<Tensor>(ones({1 << 20}));
    std::vector<Tensor> c = {ones({4})};
    const std::int64_t before = host_memory::stats().reserved;
    accel::release_memory(a, b, c);
    EXPECT_FALSE(a.defined());
    EXPECT_EQ(b, nullptr);
    EXPECT_TRUE(c.empty());
    EXPECT_LE(host_memory::stats().reserved, before - 2 * (std::int64_t{4} << 20));
}

}  // namespace axle::tests
