// Tests how join_uneven_inputs changes even_batches of prepared loaders, and training in its scope.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/log.h"
#include "dist/group/mesh.h"
#include "optim/sgd.h"
#include "tests/accel/loading/loaders.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/dist/ranks.h"
#include "tests/job.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using accel::DataLoaderConfiguration;
using tests::Batches;
using tests::expect_error;
using tests::numbers;
using tests::of_group;
using tests::on_ranks;
using tests::pass_of;
using tests::Rows;
using tests::rows_of;
using tests::stream_of_numbers;
using Group = std::shared_ptr<dist::ProcessGroup>;

// Covers 3.join_uneven_inputs.
TEST(JoinUnevenInputs, ChangesEvenBatchesUntilTheScopeEnds) {
    on_ranks(2, [](const Group& group) {
        for (const bool configured : {true, false}) {
            Accelerator accelerator(of_group(group, {.even_batches = configured}));
            data::DataLoader loader(numbers(3)), running(numbers(6));
            accelerator.prepare(loader, running);
            const std::int64_t rank = group->rank();
            const std::int64_t uneven = 2 - rank;
            for ([[maybe_unused]] auto& batch : running) {
                const auto scope = accelerator.join_uneven_inputs({}, !configured);
                EXPECT_EQ(loader.len(), configured ? uneven : 2);
                EXPECT_EQ(std::ssize(pass_of(loader)), configured ? uneven : 2);
            }
            EXPECT_EQ(loader.len(), configured ? 2 : uneven);
            const auto as_configured = accelerator.join_uneven_inputs({});
            EXPECT_EQ(loader.len(), configured ? 2 : uneven);
        }
    });
}

TEST(JoinUnevenInputs, WarnsIfEvenBatchesDoesNotApplyToALoader) {
    tests::Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        std::string logged;
        set_log_sink([&](LogLevel, std::string_view text) { logged += text; });
        for (const bool dispatches : {false, true}) {
            Accelerator accelerator(of_group(group, {.dispatch_batches = dispatches}));
            data::DataLoader loader(stream_of_numbers(3));
            accelerator.prepare(loader);
            const auto scope = accelerator.join_uneven_inputs({}, false);
            logged += str(' ', pass_of(loader).size(), '|');
        }
        set_log_sink({});
        return logged;
    });
    const std::string warning =
        "join_uneven_inputs: even_batches applies only to loaders that each process reads itself, "
        "of map-style or sharded datasets; other loaders stay as they are 2|";
    for (const tests::RankOutcome& rank : job.wait(30s)) EXPECT_EQ(rank.text, warning + warning);
}

TEST(JoinUnevenInputs, RejectsUnpreparedModels) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group));
        data::DataLoader loader(numbers(3));
        accelerator.prepare(loader);
        nn::Dropout stranger(0.5);
        expect_error<UsageError>({"join_uneven_inputs: this model has not been prepared"}, [&] {
            const auto scope = accelerator.join_uneven_inputs({&stranger}, false);
        });
        EXPECT_EQ(loader.len(), 2);
    });
}

// The models have different numbers of parameters. Process 0 reads batches 0, 2 and 4; process 1
// reads batches 1 and 3.
TEST(JoinUnevenInputs, TrainsSeveralModelsLikeOneProcess) {
    auto deep = tests::clones_of(tests::small_mlp({4, 6, 5, 1}), 3);
    auto flat = tests::clones_of(tests::small_mlp({4, 1}), 3);
    const data::TensorDataset samples = tests::samples(5);
    const auto loss_of = [](nn::Mlp& model, const Tree& sample) {
        return tests::squared_error(model(sample["x"].tensor().to(f64).view({1, 4})),
                                    sample["y"].tensor().to(f64).view({1, 1}));
    };
    for (nn::Mlp* model : {&deep[2], &flat[2]}) {
        optim::SGD sgd(model->parameters(), {.lr = 0.1});
        for (const Rows& step : {Rows{0, 1}, Rows{2, 3}, Rows{4}}) {
            sgd.zero_grad();
            for (const std::int64_t i : step) (loss_of(*model, samples.get(i)) / 2).backward();
            sgd.step();
        }
    }
    on_ranks(2, [&](const Group& group) {
        const auto rank = static_cast<std::size_t>(group->rank());
        Accelerator accelerator(of_group(group));
        data::DataLoader loader(samples);
        optim::SGD sgd_deep(deep[rank].parameters(), {.lr = 0.1});
        optim::SGD sgd_flat(flat[rank].parameters(), {.lr = 0.1});
        accelerator.prepare(deep[rank], flat[rank], loader, sgd_deep, sgd_flat);
        const auto scope = accelerator.join_uneven_inputs({&deep[rank], &flat[rank]}, false);
        for (auto& batch : loader) {
            sgd_deep.zero_grad(), sgd_flat.zero_grad();
            loss_of(deep[rank], batch).backward();
            loss_of(flat[rank], batch).backward();
            sgd_deep.step(), sgd_flat.step();
        }
    });
    for (auto* models : {&deep, &flat})
        for (const std::size_t rank : {0U, 1U})
            for (std::size_t p = 0; p < models->back().parameters().size(); ++p)
                tests::expect_close((*models)[rank].parameters()[p].detach(),
                                    models->back().parameters()[p].detach(), 1e-12);
}

TEST(JoinUnevenInputs, EndsWithAnErrorIfAnotherRankFails) {
    auto models = tests::clones_of(tests::small_mlp({4, 1}), 2);
    const auto errors = tests::outcomes(2, [&](const Group& group) {
        Accelerator accelerator(of_group(group));
        data::DataLoader loader(numbers(3));
        nn::Mlp& model = models[static_cast<std::size_t>(group->rank())];
        accelerator.prepare(model, loader);
        try {
            const auto scope = accelerator.join_uneven_inputs({&model}, false);
            if (group->rank() == 1) throw ValueError("bad batch");
        } catch (const CommError&) {
            EXPECT_EQ(loader.len(), 2);  // even_batches is restored
            throw;
        }
    });
    expect_error<CommError>({}, [&] { std::rethrow_exception(errors[0]); });
    expect_error<ValueError>({"bad batch"}, [&] { std::rethrow_exception(errors[1]); });
}

// This test uses loaders that are not prepared.
TEST(JoinUnevenInputs, LogsNothingIfEvenBatchesIsNotGiven) {
    tests::LogCapture logged;
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group));
        tests::SmallNet net;
        net.eval();
        accelerator.prepare(net);
        data::DataLoader loader(tests::samples(1 + group->rank()));
        const auto scope = accelerator.join_uneven_inputs({&net});
        for (auto& batch : loader) tests::squared_error(net(batch["x"]), batch["y"]).backward();
        for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.grad().defined());
    });
    EXPECT_THAT(logged.lines(), testing::IsEmpty());
}

}  // namespace
}  // namespace axle
