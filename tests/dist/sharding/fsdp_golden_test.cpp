// Compares sharded training with PyTorch's FSDP 2 (see tests/golden/record_sharding.py).
#include <string>
#include <vector>

#include "dist/sharding/sharded_data_parallel.h"
#include "dist/sharding/wrap_policy.h"
#include "gtest/gtest.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using tests::Group;
using tests::on_ranks;

constexpr std::int64_t kBatch = 8, kLength = 12, kVocabulary = 61;

// Returns ids and labels [8, 12] of a step.
std::pair<Tensor, Tensor> batch_of(std::int64_t step) {
    std::vector<std::int64_t> ids;
    for (std::int64_t b = 0; b < kBatch; ++b)
        for (std::int64_t i = 0; i <= kLength; ++i)
            ids.push_back((i * i + 5 * step + 3 * b) % kVocabulary);
    const Tensor all = tensor(ids).reshape({kBatch, kLength + 1});
    return {all.narrow(1, 0, kLength).contiguous(), all.narrow(1, 1, kLength).contiguous()};
}

template <class Model>
void expect_training_of_fsdp(const nlohmann::json& recorded, const char* block, int ranks,
                             dist::ShardingStrategy strategy) {
    const std::string folder =
        std::string(AXLE_TESTS_DIR "/golden/") + recorded["model"].get<std::string>();
    on_ranks(ranks, [&](const Group& group) {
        Model model = Model::from_pretrained(folder);
        model.train();
        const dist::ShardedDataParallel sharded(
            model, group, {.strategy = strategy, .units = dist::units_by_type(model, {block})});
        optim::AdamW optimizer(model.parameters(), {.lr = 1e-3, .weight_decay = 0.01});
        for (std::size_t step = 0; step < recorded["losses"].size(); ++step) {
            SCOPED_TRACE(str("step ", step));
            const auto [ids, labels] = batch_of(static_cast<std::int64_t>(step));
            const Tensor loss = model.loss(tests::part(ids, *group), tests::part(labels, *group));
            loss.backward();
            const Tensor norm = optim::clip_grad_norm_(model.parameters(), 1.0);
            optimizer.step();
            optimizer.zero_grad();
            const Tensor mean = loss.detach().clone();
            group->all_reduce(mean, dist::ReduceOp::mean);
            EXPECT_NEAR(mean.item(), recorded["losses"][step].get<double>(), 1e-5);
            EXPECT_NEAR(norm.item(), recorded["norms"][step].get<double>(), 1e-4);
        }
    });
}

// Covers 14.fsdp_version, 14.sharding_strategy.
TEST(ShardedTraining, HasTheLossesAndNormsOfFsdp2) {
    const nlohmann::json recorded = tests::golden_json("sharding.json")["cases"];
    for (const int ranks : {2, 4})
        for (const auto strategy :
             {dist::ShardingStrategy::full_shard, dist::ShardingStrategy::shard_optimizer}) {
            SCOPED_TRACE(str(ranks, " ranks, ", name_of(strategy)));
            expect_training_of_fsdp<nn::Gpt>(recorded[0], "GPT2Block", ranks, strategy);
            expect_training_of_fsdp<nn::Llama>(recorded[1], "LlamaDecoderLayer", ranks, strategy);
        }
}

}  // namespace
}  // namespace axle
