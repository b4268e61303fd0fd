// Tests sharded models that were constructed without memory, parts in files, and unshard().
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/memory/memory.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "tests/close.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using dist::FullParameters;
using dist::ShardedDataParallel;
using tests::clones_of;
using tests::expect_same_bits;
using tests::Gpt64;
using tests::Group;
using tests::on_ranks;

using tests::at;

nn::Gpt without_memory() {
    const nn::init::EmptyWeights empty;
    return nn::Gpt({.vocab_size = 13, .block_size = 6, .n_layer = 3, .n_head = 2, .n_embd = 8});
}

nn::Gpt f32_gpt() {
    nn::Gpt model = Gpt64().make();
    model.to(f32);
    return model;
}

void expect_parameters(nn::Gpt& model, const nn::Gpt& expected) {
    const FullParameters full(model);
    const nn::StateDict actual = model.named_parameters(), wanted = expected.named_parameters();
    ASSERT_EQ(actual.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        SCOPED_TRACE(wanted[i].first);
        expect_same_bits(actual[i].second.detach(), wanted[i].second.detach());
    }
}

// Covers 14.cpu_ram_efficient_loading, 14.sync_module_states.
TEST(ShardedConstruction, CopiesTheValuesOfRankZeroToEmptyModels) {
    const nn::Gpt whole = f32_gpt();
    std::vector<nn::Gpt> models;
    models.push_back(whole.clone());
    for (int rank = 1; rank < 3; ++rank) models.push_back(without_memory());
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = Gpt64().units()});
        expect_parameters(model, whole);
    });
}

// Covers 14.param_init_fn.
TEST(ShardedConstruction, CallsParamInitFnOnceForEachModuleWithoutMemory) {
    const auto initialize = [](nn::Module& module) {
        const NoGrad no_grad;
        for (Tensor& parameter : module.parameters())
            parameter.copy_(full(parameter.shape(), static_cast<double>(parameter.numel())));
    };
    nn::Gpt whole = f32_gpt();
    for (Tensor& parameter : whole.parameters()) {
        const NoGrad no_grad;
        parameter.fill_(static_cast<double>(parameter.numel()));
    }
    std::vector<nn::Gpt> models;
    for (int rank = 0; rank < 2; ++rank) models.push_back(without_memory());
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        std::multiset<const nn::Module*> initialized;
        const ShardedDataParallel sharded(
            model, group, {.units = Gpt64().units(), .param_init_fn = [&](nn::Module& module) {
                               initialized.insert(&module);
                               initialize(module);
                           }});
        // The modules are wte, wpe, ln_f and, in each block, two norms and four linear layers.
        EXPECT_EQ(initialized.size(), 3U + 3 * 6);
        EXPECT_EQ(std::set(initialized.begin(), initialized.end()).size(), initialized.size());
        expect_parameters(model, whole);
    });
}

TEST(Unshard, RestoresTheShapesValuesAndDTypesOfParameters) {
    const nn::Gpt whole = f32_gpt();
    auto models = clones_of(whole, 3);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        {
            const ShardedDataParallel sharded(
                model, group, {.units = Gpt64().units(), .precision = {.param_dtype = bf16}});
            tests::loss_of(model, 0, *group).backward();
            dist::unshard(model);
            tests::loss_of(model, 1, *group).backward();
        }
        const auto actual = model.parameters(), expected = whole.parameters();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expect_same_bits(actual[i].detach(), expected[i].detach());
            EXPECT_EQ(actual[i].grad().shape(), expected[i].shape());
        }
        dist::unshard(model);
        EXPECT_EQ(model(tests::batch_of(0).first).dtype(), f32);
    });
}

TEST(ShardedConstruction, StaysNearTheMemoryOfOnePartAndTwoUnits) {
    const auto make = [] {
        const nn::init::EmptyWeights empty;
        return nn::Gpt(
            {.vocab_size = 128, .block_size = 6, .n_layer = 8, .n_head = 2, .n_embd = 128});
    };
    std::vector<nn::Gpt> models;
    for (int rank = 0; rank < 4; ++rank) models.push_back(make());
    const std::int64_t all = models[0].num_parameters() * 4;
    const std::int64_t unit = models[0].transformer.h[0].num_parameters() * 4;
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    on_ranks(4, [&](const Group& group) {
        const ShardedDataParallel sharded(
            models[at(group)], group,
            {.units = Gpt64{.layers = 8}.units(), .param_init_fn = [](nn::Module& module) {
                 for (Tensor& p : module.parameters()) nn::init::normal_(p);
             }});
        group->barrier();
    });
    // Four ranks share this process. Each rank has a quarter of the model, for which the allocator
    // needs up to a quarter more, and, while it cuts a unit into parts, two copies of this unit.
    EXPECT_LT(host_memory::stats().peak - before, all + all / 4 + 4 * 2 * unit);
}

nn::GptConfig config_of(std::int64_t layers, std::int64_t width) {
    return {.vocab_size = 128, .block_size = 6, .n_layer = layers, .n_head = 2, .n_embd = width};
}

nn::Gpt deferred_gpt(std::int64_t layers, std::int64_t width) {
    manual_seed(7);
    const nn::init::DeferredWeights scope;
    return nn::Gpt(config_of(layers, width));
}

// For every number of ranks, the initial values must be the same as without sharding.
// Covers 15.zero3_init_flag.
TEST(ShardedConstruction, ComputesTheSameInitialValuesOfDeferredWeightsAsWithoutSharding) {
    manual_seed(7);
    const nn::Gpt whole(config_of(3, 8));
    for (const bool sync : {true, false})
        for (const int ranks : {1, 2, 3, 4}) {
            SCOPED_TRACE(ranks);
            std::vector<nn::Gpt> models;
            for (int rank = 0; rank < ranks; ++rank) models.push_back(deferred_gpt(3, 8));
            on_ranks(ranks, [&](const Group& group) {
                nn::Gpt& model = models[at(group)];
                const ShardedDataParallel sharded(
                    model, group, {.units = Gpt64().units(), .sync_module_states = sync});
                expect_parameters(model, whole);
            });
        }
}

TEST(ShardedConstruction, RejectsDeferredWeightsThatDifferBetweenRanks) {
    std::vector<nn::Gpt> models;
    models.push_back(deferred_gpt(3, 8));
    const nn::init::DeferredWeights scope;
    models.push_back(nn::Gpt(models[0].config));  // uses other random numbers
    const auto errors = tests::run_ranks(2, [&](const Group& group) {
        const ShardedDataParallel sharded(models[at(group)], group, {.sync_module_states = false});
    });
    for (const std::string& text : errors) EXPECT_THAT(text, testing::HasSubstr("values"));
}

// Four ranks share this process. Each rank has a quarter of the model and, while it cuts a unit
// into parts, this unit. The allocator rounds each size up by up to a quarter.
// Covers 15.zero3_init_flag.
TEST(ShardedConstruction, ComputesDeferredWeightsInTheMemoryOfOnePartAndOneUnit) {
    const std::int64_t before = host_memory::stats().current;
    std::vector<nn::Gpt> models;
    for (int rank = 0; rank < 4; ++rank) models.push_back(deferred_gpt(8, 128));
    EXPECT_LT(host_memory::stats().current - before, 4096);
    const std::int64_t all = models[0].num_parameters() * 4;
    const std::int64_t unit = models[0].transformer.h[0].num_parameters() * 4;
    host_memory::reset_peak();
    on_ranks(4, [&](const Group& group) {
        const ShardedDataParallel sharded(models[at(group)], group,
                                          {.units = Gpt64{.layers = 8}.units()});
        group->barrier();
    });
    EXPECT_LT(host_memory::stats().peak - before, (all + 4 * unit) * 5 / 4);
}

// Returns the file from which the memory of a tensor is mapped, or "".
std::string file_of(const Tensor& tensor) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2 && begin <= address &&
            address < end)
            return line.find('/') == std::string::npos ? "" : line.substr(line.find('/'));
    }
    return {};
}

// Covers 15.offload_param_device.
TEST(ShardedConstruction, KeepsPartsInFiles) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    nn::Gpt whole = Gpt64().make();
    auto models = clones_of(whole, 3);
    const tests::ReferenceRun expected = tests::train_alone(whole);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(
            model, group,
            {.units = Gpt64().units(), .offload_to_cpu = true, .part_folder = folder.path()});
        for (const Tensor& parameter : model.parameters()) {
            const Tensor part = autograd::local_part(parameter);
            if (part.numel() == 0) continue;
            EXPECT_THAT(file_of(part), testing::StartsWith(folder.path()));
        }
        tests::expect_same_training(model, group, expected);
    });
    EXPECT_EQ(folder.count(), 0U);
}

TEST(ShardedConstruction, RejectsAFolderForPartsThatAreNotOffloaded) {
    nn::Gpt model = Gpt64().make();
    on_ranks(1, [&](const Group& group) {
        tests::expect_error<ValueError>(
            {"ShardedDataParallel: part_folder needs offload_to_cpu = true", "/a/folder"},
            [&] { const ShardedDataParallel sharded(model, group, {.part_folder = "/a/folder"}); });
    });
}

TEST(ShardedConstruction, ThrowsOnAllRanksIfOneRankHasNoFolderForItsParts) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    const auto errors = tests::outcomes(2, [&](const Group& group) {
        const ShardedDataParallel sharded(
            models[at(group)], group,
            {.offload_to_cpu = true,
             .part_folder = group->rank() == 0 ? folder.path() : "/no/folder"});
    });
    for (const std::exception_ptr& error : errors) {
        EXPECT_THAT(tests::text_of(error), testing::HasSubstr("/no/folder"));
        EXPECT_THROW(std::rethrow_exception(error), FileError);
    }
}

}  // namespace
}  // namespace axle
