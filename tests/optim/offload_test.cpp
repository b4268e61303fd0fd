// Tests optimizer states that are kept in files.
#include "core/memory/memory.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

// Covers 15.offload_optimizer_device.
TEST(OffloadStates, KeepsBuffersInFilesWithoutChangingTheResult) {
    const tests::TemporaryFolder folder;
    const auto train = [](optim::Optimizer& optimizer, const Tensor& w) {
        for (int step = 0; step < 3; ++step) {
            sum(w * w * 3.0).backward();
            optimizer.step();
            optimizer.zero_grad();
        }
    };
    const Tensor a = arange(5000, {.dtype = f32}).set_requires_grad();
    const Tensor b = a.detach().clone().set_requires_grad();
    optim::AdamW in_memory({a}), in_files({b});
    in_files.offload_states(folder.path());
    const std::int64_t before = host_memory::stats().current;
    sum(b).backward();
    in_files.step();
    in_files.zero_grad();
    EXPECT_LT(host_memory::stats().current - before, 5000 * 4);
    sum(a).backward();
    in_memory.step();
    in_memory.zero_grad();
    train(in_memory, a);
    train(in_files, b);
    tests::expect_same_bits(a.detach(), b.detach());

    const std::int64_t loaded = host_memory::stats().current;
    in_files.load_state_dict(in_memory.state_dict());
    EXPECT_LT(host_memory::stats().current - loaded, 5000 * 4);
    train(in_memory, a);
    train(in_files, b);
    tests::expect_same_bits(a.detach(), b.detach());
}

TEST(OffloadStates, MakesStepThrowWithoutChangingParametersIfTheFolderIsMissing) {
    const Tensor w = arange(5000, {.dtype = f32}).set_requires_grad();
    const Tensor values = w.detach().clone();
    optim::AdamW nowhere({w});
    nowhere.offload_states("/no/folder");
    sum(w).backward();
    EXPECT_THROW(nowhere.step(), FileError);
    tests::expect_same_bits(w.detach(), values);
}

}  // namespace
}  // namespace axle
