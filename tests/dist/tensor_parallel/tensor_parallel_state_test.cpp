#include <cmath>
#include <filesystem>
#include <map>

#include "dist/sharding/sharded_data_parallel.h"
#include "dist/sharding/sharded_state.h"
#include "gtest/gtest.h"
#include "nn/files/pretrained.h"
#include "nn/init.h"
#include "tests/dist/tensor_parallel/divided_models.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using dist::full_state_dict;
using dist::tensor_parallelize;
using tests::at;
using tests::clones_of;
using tests::expect_close;
using tests::Group;
using tests::loss_at;
using tests::on_ranks;
using tests::small_gpt;
using tests::small_llama;
using tests::TemporaryFolder;

TEST(TensorParallelState, LoadsTheSlicesOfAFolderIntoAModelWithoutMemory) {
    const TemporaryFolder folder;
    nn::Llama whole = small_llama(true);
    whole.save_pretrained(folder.path());
    on_ranks(4, [&](const Group& group) {
        const nn::init::EmptyWeights no_memory;
        nn::Llama model(whole.config);
        model.to(f64);
        tensor_parallelize(model, group);
        nn::load_pretrained(model, folder.path());
        for (const Tensor& parameter : model.parameters())
            EXPECT_EQ(parameter.impl()->storage->bytes(),
                      static_cast<std::size_t>(parameter.numel()) * 8);
        tests::expect_same_state(full_state_dict(model, {.rank0_only = false}), whole.saved_state(),
                                 0);
        EXPECT_NEAR(loss_at(model, 0).item(), loss_at(whole, 0).item(), 1e-12);
    });
}

TEST(TensorParallelState, IsGatheredOnRankZeroOnly) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        optim::AdamW optimizer(model.parameters());
        tensor_parallelize(model, group);
        loss_at(model, 0).backward();
        optimizer.step();
        EXPECT_EQ(full_state_dict(model).empty(), group->rank() != 0);
        const Tree state = full_state_dict(optimizer);
        EXPECT_EQ(state["state"].empty(), group->rank() != 0);
    });
}

TEST(TensorParallelState, IsLoadedWithTheOptimizerOnOtherNumbersOfRanks) {
    nn::Llama whole = small_llama(false);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    auto models = clones_of(whole, 6);
    tests::train(whole, {.steps = 3}, alone);
    const Tree saved = alone.state_dict();
    const nn::StateDict weights = whole.saved_state();
    nn::StateDict weights_of_four;
    Tree state_of_four;
    on_ranks(4, [&](const Group& group) {
        nn::Llama model = std::move(models[at(group)]);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        tensor_parallelize(model, group);
        tests::train(model, {.steps = 3}, optimizer);
        const nn::StateDict state = full_state_dict(model);
        Tree states = full_state_dict(optimizer);
        if (group->rank() != 0) return;
        weights_of_four = state;
        state_of_four = std::move(states);
    });
    tests::expect_same_state(weights_of_four, weights, 1e-9);
    for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
        const std::string number = std::to_string(i);
        for (const char* name : {"exp_avg", "exp_avg_sq"})
            expect_close(state_of_four["state"][number][name].tensor(),
                         saved["state"][number][name].tensor(), 1e-9);
    }
    // Two ranks continue from the state of four ranks.
    const std::vector<double> expected = tests::train(whole, {.steps = 3}, alone);
    on_ranks(2, [&](const Group& group) {
        nn::Llama model = std::move(models[at(group) + 4]);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        tensor_parallelize(model, group);
        model.load_state_dict(weights_of_four);
        optimizer.load_state_dict(state_of_four);
        tests::expect_same_losses(tests::train(model, {.steps = 3}, optimizer), expected, 1e-9);
    });
}

TEST(TensorParallelState, IsLoadedFromAFolderOfShardedTraining) {
    const TemporaryFolder folder;
    nn::Gpt whole = small_gpt();
    auto models = clones_of(small_gpt(f64), 2);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    tests::train(whole, {.steps = 2}, alone);
    for (const char* name : {"model", "optimizer"})
        std::filesystem::create_directory(folder / name);
    const auto one = dist::ProcessGroup::alone();
    dist::save_sharded(folder / "model", dist::sharded_state(whole, true), *one);
    dist::save_sharded(folder / "optimizer", dist::sharded_state(alone, true), *one);
    const nn::StateDict saved = whole.clone().saved_state();
    const std::vector<double> expected = tests::train(whole, {.steps = 2}, alone);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        tensor_parallelize(model, group);
        const ShardedFolder weights(folder / "model"), states(folder / "optimizer");
        dist::check_sharded(weights, model);
        dist::check_sharded(states, optimizer);
        dist::load_sharded(weights, model);
        dist::load_sharded(states, optimizer);
        tests::expect_same_state(full_state_dict(model, {.rank0_only = false}), saved, 0);
        tests::expect_same_losses(tests::train(model, {.steps = 2}, optimizer), expected, 1e-9);
    });
}

TEST(WholeGradients, AreRestoredInTensorParallelModels) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 2);
    loss_at(whole, 0).backward();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        tensor_parallelize(model, group);
        loss_at(model, 0).backward();
        std::map<std::string, Tensor> gradients;
        for (const auto& [name, gradient] : dist::whole_gradients(model))
            gradients.emplace(name, gradient);
        for (const auto& [name, parameter] : whole.named_parameters())
            expect_close(gradients.at(name), parameter.grad(), 1e-12);
        std::vector<Tensor> before;
        for (const Tensor& parameter : model.parameters()) before.push_back(parameter.grad());
        dist::set_whole_gradients(model, gradients);
        for (std::size_t i = 0; i < before.size(); ++i)
            tests::expect_same_bits(model.parameters()[i].grad(), before[i]);
    });
}

// Three ranks shard the parameters of each slice, so cuts are inside rows of slices.
TEST(TensorParallelState, IsLoadedIntoAndGatheredFromShardsOfSlices) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 6);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    tests::train(whole, {.steps = 2}, alone);
    const nn::StateDict weights = whole.saved_state();
    const Tree state = alone.state_dict();
    nn::Gpt next = whole.clone();
    optim::AdamW continued(next.parameters(), {.lr = 0.01});
    continued.load_state_dict(state);
    loss_at(next, 0).backward();
    const std::vector<Tensor> gradients = tests::gradients_of(next);
    continued.zero_grad();
    const std::vector<double> expected = tests::train(next, {.steps = 2}, continued);
    on_ranks(6, [&](const Group& all) {
        nn::Gpt model = std::move(models[at(all)]);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        tensor_parallelize(model, all->split(all->rank() / 2));
        const dist::ShardedDataParallel sharded(
            model, all->split(all->rank() % 2),
            {.units = {{{"transformer.h.0"}}, {{"transformer.h.1"}}}});
        model.load_state_dict(weights);
        optimizer.load_state_dict(state);
        tests::expect_same_state(full_state_dict(model, {.rank0_only = false}), weights, 0);
        const Tree gathered = full_state_dict(optimizer, {.rank0_only = false});
        ASSERT_EQ(gathered["state"].size(), state["state"].size());
        for (const auto& [number, entry] : gathered["state"].entries())
            for (const auto& [name, value] : entry.entries())
                tests::expect_same_bits(value.tensor(), state["state"][number][name].tensor());
        loss_at(model, 0).backward();
        const nn::StateDict own = dist::whole_gradients(model);
        ASSERT_EQ(own.size(), gradients.size());
        for (std::size_t i = 0; i < own.size(); ++i) {
            SCOPED_TRACE(own[i].first);
            expect_close(own[i].second, gradients[i], 1e-12);
        }
        optimizer.zero_grad();
        tests::expect_same_losses(tests::train(model, {.steps = 2}, optimizer), expected, 1e-9);
    });
}

// Ranks are processes, because threads share one generator.
TEST(TensorParallelDropout, DropsTheSameElementsAsOneProcess) {
    const auto losses_of = [](nn::Gpt& model, const Group& group, bool sequence_parallel) {
        if (group->size() > 1)
            tensor_parallelize(model, group, {.sequence_parallel = sequence_parallel});
        manual_seed(5);
        return tests::train(model, {.steps = 5});
    };
    nn::Gpt whole = small_gpt(f64, 0.2);
    const std::vector<double> expected = losses_of(whole, dist::ProcessGroup::alone(), false);
    for (const int size : {2, 4}) {
        tests::Job job(size, [&](const dist::Environment& environment) {
            const auto group = dist::ProcessGroup::create(environment, tests::short_options());
            std::string text;
            for (const bool sequence_parallel : {false, true}) {
                nn::Gpt model = small_gpt(f64, 0.2);
                const std::vector<double> losses = losses_of(model, group, sequence_parallel);
                for (std::size_t step = 0; step < losses.size(); ++step)
                    if (std::abs(losses[step] - expected[step]) > 1e-9)
                        text += str("step ", step, ": ", losses[step], ", expected ",
                                    expected[step], "; ");
            }
            return text;
        });
        for (const tests::RankOutcome& outcome : job.wait(std::chrono::seconds(60))) {
            EXPECT_TRUE(outcome.reported);
            EXPECT_EQ(outcome.text, "");
        }
    }
}

// Expects the results of training on one process if each group of `slices` ranks divides a model
// and the `replicas` groups read different data.
template <class Wrap>
void expect_same_data_parallel_training(Wrap&& wrap, int replicas = 2, int slices = 2) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, replicas * slices);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    std::vector<double> expected;
    const auto rows = [&](std::int64_t step) {
        auto [ids, labels] = tests::ids_and_labels(step);
        return std::pair(ids.narrow(0, 0, replicas),
                         masked_fill(labels, eq(labels, -100), 0).narrow(0, 0, replicas));
    };
    for (std::int64_t step = 0; step < 10; ++step) {
        const auto [ids, labels] = rows(step);
        const Tensor loss = whole.loss(ids, labels);
        loss.backward();
        optim::clip_grad_norm_(whole.parameters(), 0.3);
        alone.step();
        alone.zero_grad();
        expected.push_back(loss.item());
    }
    on_ranks(replicas * slices, [&](const Group& all) {
        nn::Gpt model = std::move(models[at(all)]);
        const Group tp = all->split(all->rank() / slices), dp = all->split(all->rank() % slices);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        tensor_parallelize(model, tp, {.sequence_parallel = true});
        const auto wrapped = wrap(model, dp);
        for (std::int64_t step = 0; step < 10; ++step) {
            const auto [ids, labels] = rows(step);
            const Tensor loss =
                model.loss(ids.narrow(0, dp->rank(), 1), labels.narrow(0, dp->rank(), 1));
            loss.backward();
            optim::clip_grad_norm_(model.parameters(), 0.3);
            optimizer.step();
            optimizer.zero_grad();
            const Tensor mean = loss.detach().clone();
            dp->all_reduce(mean, dist::ReduceOp::mean);
            EXPECT_NEAR(mean.item(), expected[static_cast<std::size_t>(step)], 1e-9);
        }
        const nn::StateDict state = full_state_dict(model);
        if (all->rank() == 0) tests::expect_same_state(state, whole.saved_state(), 1e-9);
    });
}

TEST(TensorParallel, TrainsWithDataParallelLikeOneProcess) {
    expect_same_data_parallel_training([](nn::Gpt& model, const Group& group) {
        return std::make_unique<dist::DataParallel>(model, group);
    });
}

// With three shards, cuts are inside rows of slices, and the last part is padded.
TEST(TensorParallel, TrainsWithShardedDataParallelLikeOneProcess) {
    const auto shard = [](nn::Gpt& model, const Group& group) {
        return std::make_unique<dist::ShardedDataParallel>(
            model, group,
            dist::ShardingOptions{.units = {{{"transformer.h.0"}}, {{"transformer.h.1"}}}});
    };
    expect_same_data_parallel_training(shard);
    expect_same_data_parallel_training(shard, 3, 2);
    expect_same_data_parallel_training(shard, 2, 4);
}

}  // namespace
}  // namespace axle
