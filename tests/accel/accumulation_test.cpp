// When an update happens, and what it does.
#include <vector>

#include "tests/accel/training.h"

namespace axle {
namespace {

using tests::samples;

TEST(Accumulation, AnEvaluationOnTheLastBatchDoesNotDisturbTheNextPass) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    data::DataLoader train(samples(3)), eval(samples(2));
    accelerator.prepare(train, eval);
    for (const int epoch : {0, 1}) {
        std::vector<bool> sync;
        for (auto& batch : train) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            sync.push_back(accelerator.sync_gradients());
            if (train.end_of_dataloader())
                for (auto& held_out : eval) static_cast<void>(held_out);
        }
        EXPECT_EQ(sync, std::vector<bool>({false, true, true})) << epoch;
    }
}

TEST(Accumulation, AnEvaluationThatIsLeftEarlyDoesNotDisturbThePass) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    data::DataLoader train(samples(5)), eval(samples(3));
    accelerator.prepare(train, eval);
    std::vector<bool> sync;
    for (auto& batch : train) {
        static_cast<void>(batch);
        auto scope = accelerator.accumulate();
        sync.push_back(accelerator.sync_gradients());
        EXPECT_EQ(train.end_of_dataloader(), sync.size() == 5);
        if (sync.size() != 2) continue;
        for (auto& held_out : eval) {
            static_cast<void>(held_out);
            break;
        }
    }
    EXPECT_EQ(sync, std::vector<bool>({false, true, false, true, true}));
}

TEST(Accumulation, NeedsAtLeastOneStep) {
    Accelerator accelerator({.gradient_accumulation_steps = 3});
    tests::expect_error<ValueError>(
        {"Accelerator: gradient accumulation needs at least one step", "0"},
        [&] { accelerator.set_gradient_accumulation_steps(0); });
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
}

TEST(Accumulation, BackwardDividesTheLossByTheSteps) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    Tensor w = ones({2}, {.dtype = f64, .requires_grad = true});
    accelerator.backward((w * 3.0).sum());
    accelerator.backward((w * 5.0).sum());
    EXPECT_EQ(w.grad().to_vector(), std::vector<double>({2, 2}));
}

}  // namespace
}  // namespace axle
