// Tests an Accelerator that trains with configurations of DeepSpeed on several processes.
#include <string>
#include <vector>

#include "accel/prepare/deepspeed_objects.h"
#include "accel/prepare/deepspeed_sharding.h"
#include "core/autograd/local_part.h"
#include "gtest/gtest.h"
#include "tests/accel/prepare/sharded_run.h"

namespace axle::accel {
namespace {

using dist::ShardedDataParallel;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Gpt64;
using tests::Group;
using tests::on_ranks;

// The keys and values of Accelerate's template for stage 3, with "auto" for fp16.enabled and 2 for
// gradient_accumulation_steps.
constexpr const char* kStage3 = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
             "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW",
                  "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": true,
                             "adam_w_mode": true}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                             "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
                          "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9,
                          "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
                          "stage3_gather_16bit_weights_on_model_save": "auto"},
    "gradient_accumulation_steps": 2, "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false})";

AcceleratorOptions with_config(const DeepSpeedConfig& config, const Group& group) {
    AcceleratorOptions options{.cpu = true, .deepspeed_plugin = {{.hf_ds_config = config}}};
    options.process_group = group;
    return options;
}

DeepSpeedConfig stage3(const Tree& more) {
    Tree zero = {{"stage", 3}};
    for (const auto& [key, value] : more.entries()) zero.set(key, value);
    return Tree{{"zero_optimization", zero}};
}

// Trains with all objects of a configuration: an optimizer, a schedule and a loader with 12 rows
// for each micro-batch of all ranks. Returns the mean losses of the micro-batches.
std::vector<double> train(nn::Gpt& gpt, Accelerator& accelerator, const Group& group) {
    constexpr std::int64_t kBatches = 8;
    std::vector<Tensor> ids, labels;
    for (std::int64_t step = 0; step < kBatches; ++step) {
        const auto [x, y] = tests::batch_of(step);
        ids.push_back(x);
        labels.push_back(y);
    }
    data::DataLoader batches(data::TensorDataset(Tree{{"ids", cat(ids, 0)}, {"y", cat(labels, 0)}}),
                             {.batch_size = 12 / group->size()});
    DummyOptim adamw(gpt.parameters(), 0.01, 0.1);
    DummyScheduler decay{.total_num_steps = 4 * group->size(), .warmup_num_steps = 2};
    auto [model, optimizer, loader, schedule] = accelerator.prepare(gpt, adamw, batches, decay);
    std::vector<double> losses;
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        const Tensor loss = model.loss(batch["ids"], batch["y"]);
        accelerator.backward(loss);
        optimizer.step();
        schedule.step();
        optimizer.zero_grad();
        const Tensor mean = loss.detach().clone();
        group->all_reduce(mean, dist::ReduceOp::mean);
        losses.push_back(mean.item());
    }
    EXPECT_EQ(losses.size(), static_cast<std::size_t>(kBatches));
    return losses;
}

const ShardedDataParallel& sharded(const Accelerator& accelerator, const nn::Module& model) {
    return dynamic_cast<const ShardedDataParallel&>(*accelerator.data_parallel(model));
}

// The reference is one process without sharding.
// Covers 15.hf_ds_config, 15.zero_stage, 15.engine, 15.auto.
TEST(DeepSpeedTraining, TrainsLikeOneProcessWithTheConfigurationOfStage3) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    DeepSpeedConfig stage0(kStage3);
    stage0.set("zero_optimization.stage", 0);
    const auto alone = dist::ProcessGroup::alone();
    Accelerator reference(with_config(stage0, alone));
    const std::vector<double> expected = train(whole, reference, alone);
    const Tensor change = whole.transformer.wte.weight.detach() - initial.transformer.wte.weight;
    EXPECT_GT(max(abs(change)).item(), 0.01);
    for (const int ranks : {2, 3}) {
        SCOPED_TRACE(str(ranks, " ranks"));
        auto models = clones_of(initial, ranks);
        on_ranks(ranks, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Accelerator accelerator(with_config(kStage3, group));
            const std::vector<double> losses = train(model, accelerator, group);
            EXPECT_TRUE(autograd::is_sharded(model.transformer.wte.weight));
            for (std::size_t i = 0; i < losses.size(); ++i)
                EXPECT_NEAR(losses[i], expected[i], 1e-9) << "micro-batch " << i;
            const dist::FullParameters full(model);
            const auto actual = model.named_parameters(), wanted = whole.named_parameters();
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                SCOPED_TRACE(wanted[i].first);
                tests::expect_close(actual[i].second.detach(), wanted[i].second.detach(), 1e-9);
            }
        });
    }
}

// Covers 15.zero_optimization.
TEST(DeepSpeedTraining, ShardsWithinGroupsOfMicsShardSize) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole);
    for (const int size : {1, 2, 4}) {
        SCOPED_TRACE(str("mics_shard_size ", size));
        auto models = clones_of(initial, 4);
        on_ranks(4, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Accelerator accelerator(with_config(stage3({{"mics_shard_size", size}}), group));
            accelerator.prepare(model);
            const auto& [counters, options] = std::pair(&sharded(accelerator, model).counters(),
                                                        &sharded(accelerator, model).options());
            ASSERT_EQ(options->replicas == nullptr, size == 4);
            if (size < 4) {
                EXPECT_EQ(options->replicas->rank(), group->rank() / size);
            }
            double stored = 0;
            for (const Tensor& p : model.parameters())
                stored += static_cast<double>(autograd::local_part(p).numel());
            const Tensor total = full({}, stored, {.dtype = f64});
            group->all_reduce(total);
            EXPECT_EQ(total.item(), 4.0 / size * static_cast<double>(initial.num_parameters()));
            tests::expect_same_training(model, group, expected);
            EXPECT_EQ(counters->all_reduces, size == 4 ? 0 : counters->reduce_scatters);
        });
    }
}

// Covers 15.zero_optimization.
TEST(DeepSpeedTraining, GathersForBackwardWithinGroupsOfHpzPartitionSize) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole);
    for (const int size : {1, 2, 4}) {
        SCOPED_TRACE(str("zero_hpz_partition_size ", size));
        auto models = clones_of(initial, 4);
        on_ranks(4, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Accelerator accelerator(
                with_config(stage3({{"zero_hpz_partition_size", size}}), group));
            accelerator.prepare(model);
            const ShardedDataParallel& distributed = sharded(accelerator, model);
            EXPECT_EQ(distributed.options().secondary == nullptr, size == 1);
            tests::expect_same_training(model, group, expected);
            const dist::ShardingCounters& counters = distributed.counters();
            EXPECT_EQ(counters.secondary_all_gathers > 0, size > 1);
            EXPECT_LE(counters.secondary_all_gathers, counters.all_gathers / 2);
            EXPECT_EQ(counters.all_reduces, 0);
        });
    }
}

// Covers 15.zero_optimization.
TEST(DeepSpeedTraining, RejectsInvalidAndContradictoryGroupSizes) {
    const auto groups_of = [](const Tree& keys, int processes) {
        return deepspeed_groups_of(stage3(keys), processes);
    };
    EXPECT_EQ(groups_of({{"mics_shard_size", -1}, {"zero_hpz_partition_size", 1}}, 4).shards, 0);
    EXPECT_EQ(groups_of({{"mics_shard_size", 2}}, 4).shards, 2);
    EXPECT_EQ(groups_of({{"zero_hpz_partition_size", 4}}, 4).secondary, 4);
    for (const char* key : {"mics_shard_size", "zero_hpz_partition_size"}) {
        SCOPED_TRACE(key);
        for (const int size : {3, 8})
            expect_error<ValueError>(
                {"DeepSpeedPlugin: ", key,
                 str(": must be a divisor of the number of processes, 4: ", size).c_str()},
                [&] {
                    groups_of({{key, size}}, 4);
                });
        expect_error<ValueError>({"DeepSpeedPlugin: ", key, ": must be an integer: \"all\""}, [&] {
            groups_of({{key, "all"}}, 4);
        });
    }
    expect_error<ValueError>(
        {"DeepSpeedPlugin: ",
         "mics_shard_size and zero_optimization.zero_hpz_partition_size are "
         "both given; use one"},
        [&] {
            groups_of({{"mics_shard_size", 2}, {"zero_hpz_partition_size", 2}}, 4);
        });
    on_ranks(3, [&](const Group& group) {
        nn::Gpt model = Gpt64().make();
        Accelerator accelerator(with_config(stage3({{"mics_shard_size", 2}}), group));
        expect_error<ValueError>({"DeepSpeedPlugin: ",
                                  "zero_optimization.mics_shard_size: must be a divisor of the "
                                  "number of processes, 3: 2"},
                                 [&] { accelerator.prepare(model); });
    });
}

}  // namespace
}  // namespace axle::accel
