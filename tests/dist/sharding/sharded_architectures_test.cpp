// Compares sharded training of GPT, Llama and BERT with training on one process.
#include "tests/dist/sharding/architectures.h"

namespace axle {
namespace {

template <class Model>
class ShardedArchitectures : public testing::Test {};
using Architectures = testing::Types<nn::Gpt, nn::Llama, nn::BertForMaskedLM>;
TYPED_TEST_SUITE(ShardedArchitectures, Architectures);

// Covers 14.sharding_strategy, 15.zero_stage.
TYPED_TEST(ShardedArchitectures, TrainLikeOneProcessInF64) {
    tests::expect_training_of_one_process<TypeParam>(tests::on_cpu_ranks, f64, 1e-9);
}

// Covers 14.sharding_strategy, 15.zero_stage.
TYPED_TEST(ShardedArchitectures, TrainLikeOneProcessInF32) {
    tests::expect_training_of_one_process<TypeParam>(tests::on_cpu_ranks, f32, 1e-4);
}

}  // namespace
}  // namespace axle
