// Tests checkpoints of models with quantized weights and a LoRA adapter.
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/adapters/lora.h"
#include "nn/layers/layers.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

struct Net : nn::Model<Net> {
    nn::Linear first{40, 64}, second{64, 8};
    Tensor forward(const Tensor& x) { return second(relu(first(x))); }
    void visit(nn::Visitor& v) override { v("first", first), v("second", second); }
};

// A training run of an adapter with dropout, over quantized weights that depend on the seed.
struct AdapterTraining {
    explicit AdapterTraining(std::uint64_t seed, WeightFormat format) {
        manual_seed(seed);
        net = std::make_unique<Net>();
        nn::quantize_linears(*net, {.format = format});
        nn::add_lora(*net, {.r = 2, .lora_dropout = 0.1, .target_modules = {"all-linear"}});
        adamw = std::make_unique<optim::AdamW>(nn::trainable_parameters(*net),
                                               optim::AdamWOptions{.lr = 1e-2});
        accelerator.prepare(*net, *adamw);
    }
    std::vector<double> steps(int count) {
        std::vector<double> losses;
        for (int i = 0; i < count; ++i) {
            const Tensor y = (*net)(randn({6, 40}));
            const Tensor loss = mean(y * y);
            accelerator.backward(loss);
            adamw->step();
            adamw->zero_grad();
            losses.push_back(loss.item());
        }
        return losses;
    }

    Accelerator accelerator{{.cpu = true}};
    std::unique_ptr<Net> net;
    std::unique_ptr<optim::AdamW> adamw;
};

TEST(QuantizedState, ResumesTrainingWithTheSameBits) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        const tests::TemporaryFolder folder;
        AdapterTraining whole(1, format);
        whole.steps(3);
        whole.accelerator.save_state(folder / "state");
        const std::vector<double> losses = whole.steps(3);
        AdapterTraining resumed(2, format);
        resumed.accelerator.load_state(folder / "state");
        EXPECT_EQ(resumed.steps(3), losses);
        const nn::StateDict expected = whole.net->state_dict(), state = resumed.net->state_dict();
        ASSERT_EQ(state.size(), expected.size());
        for (std::size_t i = 0; i < state.size(); ++i)
            if (is_compute(state[i].second.dtype()))
                tests::expect_same_bits(state[i].second, expected[i].second);
    }
}

TEST(QuantizedState, IsRejectedWithoutChangesByAModelOfAnotherFormat) {
    const tests::TemporaryFolder folder;
    AdapterTraining nf4(1, WeightFormat::nf4);
    nf4.accelerator.save_state(folder / "state");
    AdapterTraining int8(2, WeightFormat::int8);
    const Tensor x = randn({2, 40});
    int8.net->eval();
    const Tensor before = (*int8.net)(x).detach();
    EXPECT_THROW(int8.accelerator.load_state(folder / "state"), Error);
    tests::expect_same_bits((*int8.net)(x).detach(), before);
}

}  // namespace
}  // namespace axle
