// Tests Accumulation without an Accelerator: how it counts micro-batches.
#include <vector>

#include "accel/loop/accumulation.h"
#include "tests/accel/training.h"

namespace axle::accel {
namespace {

using tests::samples;

// Returns sync_gradients() in each of `count` micro-batches.
std::vector<bool> sync_flags(Accumulation& accumulation, int count) {
    std::vector<bool> flags;
    for (int i = 0; i < count; ++i) {
        accumulation.begin_micro_batch();
        flags.push_back(accumulation.sync_gradients());
    }
    return flags;
}

// Returns sync_gradients() in each batch of one pass over a loader.
std::vector<bool> sync_flags(Accumulation& accumulation, data::DataLoader& loader) {
    std::vector<bool> flags;
    accumulation.begin_pass(loader);
    for ([[maybe_unused]] auto& batch : loader)
        flags.push_back(sync_flags(accumulation, 1).front());
    accumulation.end_pass(loader);
    return flags;
}

TEST(Accumulation, CompletesAnUpdateAfterEveryNthMicroBatch) {
    Accumulation accumulation({.num_steps = 3});
    EXPECT_TRUE(accumulation.sync_gradients());
    EXPECT_EQ(sync_flags(accumulation, 6), (std::vector<bool>{0, 0, 1, 0, 0, 1}));
    EXPECT_EQ(accumulation.counts().opened, 6);
    EXPECT_EQ(accumulation.counts().window, 3);
}

TEST(Accumulation, CompletesAnUpdateAtTheEndOfAPass) {
    data::DataLoader loader(samples(3));
    Accumulation accumulation({.num_steps = 2});
    EXPECT_EQ(sync_flags(accumulation, loader), (std::vector<bool>{0, 1, 1}));
    EXPECT_EQ(accumulation.counts().step, 0);
    EXPECT_EQ(accumulation.active_loader(), nullptr);
}

TEST(Accumulation, ContinuesAShortWindowInTheNextPassIfSyncWithDataloaderIsFalse) {
    data::DataLoader loader(samples(3));
    Accumulation accumulation({.num_steps = 2, .sync_with_dataloader = false});
    EXPECT_EQ(sync_flags(accumulation, loader), (std::vector<bool>{0, 1, 0}));
    EXPECT_EQ(sync_flags(accumulation, loader), (std::vector<bool>{1, 0, 1}));
}

TEST(Accumulation, DropsAShortWindowAtTheEndOfAPassOnRequest) {
    data::DataLoader loader(samples(3));
    Accumulation accumulation({.num_steps = 2, .short_window = ShortWindow::drop});
    EXPECT_EQ(sync_flags(accumulation, loader), (std::vector<bool>{0, 1, 0}));
    EXPECT_EQ(accumulation.counts().step, 0);
    EXPECT_FALSE(accumulation.drops_window());
    EXPECT_EQ(sync_flags(accumulation, loader), (std::vector<bool>{0, 1, 0}));
}

TEST(Accumulation, DelaysReductionUntilTheUpdateUnlessSyncEachBatchIsSet) {
    Accumulation accumulation({.num_steps = 2});
    Accumulation each({.num_steps = 2, .sync_each_batch = true});
    EXPECT_FALSE(accumulation.holds_back());
    accumulation.begin_micro_batch();
    each.begin_micro_batch();
    EXPECT_TRUE(accumulation.holds_back());
    EXPECT_FALSE(each.holds_back());
    accumulation.begin_micro_batch();
    EXPECT_FALSE(accumulation.holds_back());
}

TEST(Accumulation, ReturnsTheLoaderOfTheInnermostLoop) {
    data::DataLoader outer(samples(1)), inner(samples(1));
    Accumulation accumulation;
    accumulation.begin_pass(outer);
    accumulation.begin_pass(inner);
    EXPECT_EQ(accumulation.state().active_dataloader, &inner);
    accumulation.end_pass(inner);
    EXPECT_EQ(accumulation.state().active_dataloader, &outer);
    accumulation.end_pass(outer);
    EXPECT_FALSE(accumulation.state().in_dataloader());
}

TEST(Accumulation, RepeatsPositionKeysInEachWindow) {
    Accumulation accumulation({.num_steps = 2});
    const std::string first = accumulation.position_key(false);
    accumulation.begin_micro_batch();
    EXPECT_NE(accumulation.position_key(false), first);
    accumulation.begin_micro_batch();
    EXPECT_EQ(accumulation.position_key(false), first);
}

TEST(Accumulation, ResetsTheStepButNotTheMicroBatchCount) {
    Accumulation accumulation({.num_steps = 4});
    sync_flags(accumulation, 2);
    accumulation.reset();
    EXPECT_TRUE(accumulation.sync_gradients());
    EXPECT_EQ(accumulation.counts().step, 0);
    EXPECT_EQ(accumulation.counts().opened, 2);
}

}  // namespace
}  // namespace axle::accel
