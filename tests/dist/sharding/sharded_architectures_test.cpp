// Compares sharded training of GPT, Llama and BERT with training on one process.
#include <string>
#include <vector>

#include "dist/sharding/wrap_policy.h"
#include "tests/dist/sharding/architectures.h"

namespace axle {
namespace {

using dist::ShardingStrategy;
using tests::expect_close;
using tests::Group;
using tests::on_ranks;

template <class Model>
class ShardedArchitectures : public testing::Test {
  protected:
    // Expects that each strategy on 2 to 4 ranks gives the losses and, in f64, the parameters of
    // one process. In f32, Adam enlarges rounding errors of gradients that are zero in exact
    // arithmetic, such as gradients of the biases of keys.
    static void expect_training_of_one_process(DType dtype, double tolerance) {
        manual_seed(3);
        Model whole = tests::small_architecture(static_cast<Model*>(nullptr));
        whole.to(dtype);
        const Model start = whole.clone();
        const std::vector<double> expected =
            tests::train_architecture(whole, dist::ProcessGroup::alone());
        const Tensor change = whole.parameters()[0].detach() - start.parameters()[0].detach();
        EXPECT_GT(max(abs(change)).item(), 0.02);
        for (const int ranks : {2, 3, 4})
            for (const auto strategy :
                 {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op,
                  ShardingStrategy::shard_optimizer}) {
                SCOPED_TRACE(str(ranks, " ranks, ", name_of(strategy)));
                auto models = tests::clones_of(start, ranks);
                on_ranks(ranks, [&](const Group& group) {
                    Model& model = models[static_cast<std::size_t>(group->rank())];
                    const dist::ShardedDataParallel sharded(
                        model, group,
                        {.strategy = strategy,
                         .units = dist::units_by_type(model, model.no_split_modules())});
                    const std::vector<double> losses = tests::train_architecture(model, group);
                    for (std::size_t i = 0; i < losses.size(); ++i)
                        EXPECT_NEAR(losses[i], expected[i], tolerance) << "step " << i;
                    if (dtype == f32) return;
                    const dist::FullParameters full(model);
                    const nn::StateDict actual = model.named_parameters();
                    const nn::StateDict wanted = whole.named_parameters();
                    for (std::size_t i = 0; i < wanted.size(); ++i) {
                        SCOPED_TRACE(wanted[i].first);
                        expect_close(actual[i].second.detach(), wanted[i].second.detach(),
                                     tolerance);
                    }
                });
            }
    }
};
using Architectures = testing::Types<nn::Gpt, nn::Llama, nn::BertForMaskedLM>;
TYPED_TEST_SUITE(ShardedArchitectures, Architectures);

// Covers 14.sharding_strategy, 15.zero_stage.
TYPED_TEST(ShardedArchitectures, TrainLikeOneProcessInF64) {
    this->expect_training_of_one_process(f64, 1e-9);
}

// Covers 14.sharding_strategy, 15.zero_stage.
TYPED_TEST(ShardedArchitectures, TrainLikeOneProcessInF32) {
    this->expect_training_of_one_process(f32, 1e-4);
}

}  // namespace
}  // namespace axle
