#include "accel/prepare/deepspeed_sharding.h"

#include <string>
#include <vector>

#include "accel/config/options.h"
#include "accel/config/resolve_options.h"
#include "nn/layers/linear.h"
#include "tests/close.h"

namespace axle::accel {
namespace {

using dist::ShardingStrategy;
using tests::expect_error;

struct Block : nn::Model<Block> {
    nn::Linear hidden{4, 8}, out{8, 4};
    Tensor forward(const Tensor& x) { return out(hidden(x)); }
    void visit(nn::Visitor& v) override { v("hidden", hidden), v("out", out); }
};
struct Net : nn::Model<Net> {
    Block first, second;
    nn::Linear head{4, 1};
    Tensor forward(const Tensor& x) { return head(second(first(x))); }
    void visit(nn::Visitor& v) override { v("first", first), v("second", second), v("head", head); }
};

std::optional<dist::ShardingOptions> options_of(const Tree& config,
                                                const std::vector<std::string>& moe = {}) {
    Net net;
    const auto plugin =
        resolved({.deepspeed_plugin = {{.hf_ds_config = config, .transformer_moe_cls_names = moe}}})
            .deepspeed_plugin;
    return sharding_options_of(*plugin, net, Device::cpu());
}

std::optional<dist::ShardingOptions> options_of_stage(int stage, const Tree& more = Tree::map()) {
    Tree config = more;
    config.set("zero_optimization", {{"stage", stage}});
    return options_of(config);
}

std::string units_of(const dist::ShardingOptions& options) {
    std::string names;
    for (const auto& unit : options.units) names += unit.modules.at(0) + " ";
    return names;
}

// Covers 15.zero_stage.
TEST(ShardingOptionsOf, ConvertsZeroStagesToShardingStrategies) {
    EXPECT_FALSE(options_of_stage(0));
    const auto one = options_of_stage(1), two = options_of_stage(2), three = options_of_stage(3);
    EXPECT_EQ(one->strategy, ShardingStrategy::shard_optimizer);
    EXPECT_FALSE(one->reduce_without_sync);
    EXPECT_EQ(two->strategy, ShardingStrategy::shard_optimizer);
    EXPECT_TRUE(two->reduce_without_sync);
    EXPECT_EQ(three->strategy, ShardingStrategy::full_shard);
    EXPECT_TRUE(three->reduce_without_sync);
    EXPECT_EQ(three->precision, dist::ShardingPrecision());
    EXPECT_TRUE(three->forward_prefetch);
}

// Covers 15.fp16.
TEST(ShardingOptionsOf, TakesPrecisionFromTheConfigurationAndRejectsFp64Communication) {
    using Precision = dist::ShardingPrecision;
    EXPECT_EQ(options_of_stage(2, {{"bf16", {{"enabled", true}}}})->precision,
              (Precision{bf16, bf16}));
    EXPECT_EQ(options_of_stage(3, {{"fp16", {{"enabled", true}}}})->precision,
              (Precision{f16, f16}));
    EXPECT_EQ(
        options_of_stage(1, {{"bf16", {{"enabled", true}}}, {"communication_data_type", "fp32"}})
            ->precision,
        (Precision{bf16, f32}));
    expect_error<ValueError>(
        {"DeepSpeedPlugin: ", "communication_data_type: must be \"fp32\", \"fp16\" or \"bf16\""},
        [] {
            options_of_stage(1, {{"communication_data_type", "fp64"}});
        });
}

// Covers 15.transformer_moe_cls_names.
TEST(ShardingOptionsOf, ChoosesUnitsByModuleTypeOrSizeAndRejectsUnknownTypesAndNegativeSizes) {
    const auto with = [](const Tree& more) {
        Tree zero = {{"stage", 3}};
        for (const auto& [key, value] : more.entries()) zero.set(key, value);
        return Tree{{"zero_optimization", zero}};
    };
    EXPECT_EQ(units_of(*options_of(with(Tree::map()), {"Block"})), "first second ");
    EXPECT_EQ(units_of(*options_of(with(Tree::map()))), "");  // all modules are small
    EXPECT_EQ(units_of(*options_of(with({{"stage3_param_persistence_threshold", 40}}))),
              "first.hidden second.hidden ");
    EXPECT_EQ(units_of(*options_of(with({{"stage3_param_persistence_threshold", 0}}))),
              "first.hidden first.out second.hidden second.out head ");
    expect_error<ValueError>(
        {"DeepSpeedPlugin: transformer_moe_cls_names: the model has no module of type 'Blok'"},
        [&] { options_of(with(Tree::map()), {"Blok"}); });
    expect_error<ValueError>(
        {"DeepSpeedPlugin: ",
         "stage3_param_persistence_threshold: must be a number of elements from 0 to"},
        [&] {
            options_of(with({{"stage3_param_persistence_threshold", -1}}));
        });
}

// Covers 15.hf_ds_config.
TEST(ShardingOptionsOf, TurnsPrefetchingOffIfThePrefetchBucketSizeIsZero) {
    const auto options =
        options_of({{"zero_optimization", {{"stage", 3}, {"stage3_prefetch_bucket_size", 0}}}});
    EXPECT_FALSE(options->forward_prefetch);
    EXPECT_EQ(options->backward_prefetch, dist::BackwardPrefetch::none);
}

}  // namespace
}  // namespace axle::accel
