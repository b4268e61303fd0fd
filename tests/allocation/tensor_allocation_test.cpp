// Tests tensor allocations that fail in a training step, in the search for a batch size and in a
// worker of a loader.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "accel/utils/memory_utils.h"
#include "core/memory/memory.h"
#include "data/loading/loader.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/allocation/training_step.h"
#include "tests/dist/ranks.h"

namespace axle::tests {
namespace {

using testing::HasSubstr;

// Makes the allocation of one tensor fail while the object exists, and counts allocations.
class FailingTensors {
  public:
    // Makes allocation `number`, counted from 1, fail.
    explicit FailingTensors(int number) {
        first_ = number;
        calls_ = 0;
        host_memory::set_allocator({.allocate = allocate,
                                    .deallocate = deallocate,
                                    .context = nullptr,
                                    .caches_blocks = false});
    }
    ~FailingTensors() { host_memory::set_allocator({}); }
    FailingTensors(const FailingTensors&) = delete;
    FailingTensors& operator=(const FailingTensors&) = delete;

  private:
    static void* allocate(std::size_t size, std::size_t alignment, void*) {
        // After a failure, the allocator empties its cache and tries again, so the second attempt
        // must fail, too.
        const int call = ++calls_;
        if (call == first_ || call == first_ + 1) return nullptr;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }
    static void deallocate(void* block, std::size_t, void*) noexcept { std::free(block); }

    static inline int first_ = 0, calls_ = 0;
};

std::int64_t bytes_in_use() { return host_memory::stats().current; }

// Runs the step once for each of its allocations. In each run, this allocation fails.
void fail_each_allocation(TrainingStep& step) {
    const TrainingStep::State before = step.state();
    step.run();
    const TrainingStep::State after = step.state();
    step.load(before);
    const std::int64_t in_use = bytes_in_use();
    for (int number = 1;; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        bool failed = false;
        try {
            const FailingTensors failing(number);
            step.run();
        } catch (const OutOfMemory& error) {
            failed = true;
            EXPECT_GT(error.requested, 0);
            EXPECT_THAT(error.what(), HasSubstr(str(error.requested, " bytes requested")));
        }
        if (!failed) {
            EXPECT_GT(number, 50);  // the step has that many allocations
            break;
        }
        if (step.stage != TrainingStep::Stage::schedule) {
            ASSERT_TRUE(step.has_state_of(before));
        }
        step.repeat();
        ASSERT_TRUE(step.has_state_of(after));
        step.load(before);
        ASSERT_EQ(bytes_in_use(), in_use);
    }
    step.load(after);
}

TEST(TensorAllocationFailure, LeavesATrainingStepThatCanBeRepeated) {
    TrainingStep step;
    fail_each_allocation(step);  // the first step creates the state of the optimizer
    fail_each_allocation(step);
}

TEST(TensorAllocationFailure, LeavesABf16TrainingStepThatCanBeRepeated) {
    TrainingStep step("bf16");
    fail_each_allocation(step);
}

// Makes allocations of more than `limit` bytes fail. Each thread has its own limit.
struct LimitedThread {
    static inline thread_local std::size_t limit = SIZE_MAX;

    LimitedThread() {
        host_memory::set_allocator({.allocate = allocate,
                                    .deallocate = deallocate,
                                    .context = nullptr,
                                    .caches_blocks = false});
    }
    ~LimitedThread() { host_memory::set_allocator({}); }
    LimitedThread(const LimitedThread&) = delete;
    LimitedThread& operator=(const LimitedThread&) = delete;

  private:
    static void* allocate(std::size_t size, std::size_t alignment, void*) {
        if (size > limit) return nullptr;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }
    static void deallocate(void* block, std::size_t, void*) noexcept { std::free(block); }
};

TEST(TensorAllocationFailure, ReducesTheBatchSizeOnAllProcesses) {
    const LimitedThread limited;
    std::array<int, 3> found = {};
    on_ranks(3, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        if (group->rank() == 1) LimitedThread::limit = 100000;
        auto find = accel::find_executable_batch_size(
            [](int batch_size) {
                static_cast<void>(full({batch_size, 1000}, 1.0));
                return batch_size;
            },
            64, {.process_group = group});
        found[static_cast<std::size_t>(group->rank())] = find();
    });
    EXPECT_EQ(found, (std::array{22, 22, 22}));
}

TEST(TensorAllocationFailure, ThrowsOnAllProcessesIfEveryBatchSizeFails) {
    const LimitedThread limited;
    const std::vector<std::exception_ptr> errors =
        outcomes(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            if (group->rank() == 1) LimitedThread::limit = 1000;
            auto find = accel::find_executable_batch_size(
                [](int batch_size) {
                    static_cast<void>(full({batch_size, 1000}, 1.0));
                },
                8, {.process_group = group});
            find();
        });
    for (const std::exception_ptr& error : errors) {
        EXPECT_THROW(std::rethrow_exception(error), OutOfMemory);
        EXPECT_THAT(text_of(error), HasSubstr("No executable batch size found, reached zero."));
    }
}

TEST(TensorAllocationFailure, IsRethrownInTheLoopIfALoaderWorkerFails) {
    const LimitedThread limited;
    std::atomic<int> fails_at = -1;
    data::DataLoader loader(
        data::from_function(12,
                            [&](std::int64_t i) {
                                LimitedThread::limit = i == fails_at ? 1000 : SIZE_MAX;
                                return Tree{{"x", full({1000}, static_cast<double>(i))}};
                            }),
        {.batch_size = 2, .num_workers = 2});
    for (const int i : {0, 5, 11}) {
        fails_at = i;
        std::int64_t batches = 0;
        try {
            for ([[maybe_unused]] auto& batch : loader) ++batches;
            ADD_FAILURE() << "sample " << i << " did not fail";
        } catch (const OutOfMemory& error) {
            EXPECT_EQ(error.requested, 4000);
            EXPECT_THAT(error.what(), testing::StartsWith(str("DataLoader: batch ", i / 2)));
        }
        EXPECT_EQ(batches, i / 2);
        fails_at = -1;
        double total = 0;
        for (auto& batch : loader) total += sum(batch["x"].tensor()).item();
        EXPECT_EQ(total, 66000);
    }
}

}  // namespace
}  // namespace axle::tests
