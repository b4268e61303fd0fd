// Tests sharded training of LoRA adapters over quantized weights.
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/sharding/wrap_policy.h"
#include "gtest/gtest.h"
#include "nn/adapters/lora.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

// Trains the adapter for four steps and returns the last loss.
double train(nn::Llama& model) {
    const Tensor ids = tensor({1, 2, 3, 4, 5}, {.dtype = i64}).reshape({1, 5});
    optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 1e-2});
    double last = 0;
    for (int step = 0; step < 4; ++step) {
        const Tensor loss = model.loss(ids.slice(1, 0, -1), ids.slice(1, 1));
        loss.backward();
        adamw.step();
        adamw.zero_grad();
        last = loss.item();
    }
    return last;
}

TEST(ShardedDataParallel, TrainsAdaptersOverQuantizedWeightsLikeOneProcess) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        manual_seed(1);
        nn::Llama whole({.vocab_size = 16,
                         .hidden_size = 32,
                         .intermediate_size = 48,
                         .num_hidden_layers = 2,
                         .num_attention_heads = 4});
        nn::quantize_linears(whole, {.format = format});
        nn::add_lora(whole, {.r = 2, .target_modules = {"all-linear"}});
        std::vector<nn::Llama> models = tests::clones_of(whole, 2);
        const double expected = train(whole);
        tests::on_ranks(2, [&](const tests::Group& group) {
            nn::Llama& model = models[tests::at(group)];
            const dist::ShardedDataParallel sharded(
                model, group, {.units = dist::units_by_type(model, {"LlamaDecoderLayer"})});
            EXPECT_NEAR(train(model), expected, 1e-5);
            dist::unshard(model);
        });
        const Tensor ids = tensor({3, 1}, {.dtype = i64}).reshape({1, 2});
        for (nn::Llama& model : models)
            tests::expect_close(model(ids).detach(), whole(ids).detach(), 1e-5);
    }
}

}  // namespace
}  // namespace axle
