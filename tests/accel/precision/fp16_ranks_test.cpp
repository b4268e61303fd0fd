// Tests mixed precision in f16 on several ranks: a gradient of one rank that is not finite makes
// all ranks skip the step.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "nn/layers/mlp.h"
#include "optim/grad_scaler.h"
#include "tests/accel/training.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using tests::Group;

constexpr int kUpdates = 100;
constexpr double kInitScale = 4096;

// A loss, or an element of a gradient, that becomes infinite or NaN on one rank.
struct Fault {
    int rank = 0, micro_batch = 0;
    std::size_t parameter = 0;
    double value = 0;
    // If true, the loss is infinite or NaN; if false, an element of the gradient becomes infinite
    // or NaN after backward.
    bool in_loss = false;
};

struct Update {
    std::optional<Fault> fault;
    bool clips = false;
};

std::vector<Update> random_updates(int ranks, int accumulation, std::size_t parameters) {
    std::mt19937 random(static_cast<unsigned>(10 * ranks + accumulation));
    const double infinity = std::numeric_limits<double>::infinity();
    const double values[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
    const auto below = [&](int end) {
        return static_cast<int>(random() % static_cast<unsigned>(end));
    };
    std::vector<Update> updates(kUpdates);
    for (Update& update : updates) {
        if (below(5) == 0)
            update.fault =
                Fault{.rank = below(ranks),
                      .micro_batch = below(accumulation),
                      .parameter = static_cast<std::size_t>(below(static_cast<int>(parameters))),
                      .value = values[below(3)],
                      .in_loss = below(3) == 0};
        update.clips = below(2) == 0;
    }
    return updates;
}

// The state of a rank after an update.
struct Record {
    std::vector<Tensor> weights;  // parameters and the state of the optimizer
    std::string scaler;
    bool skipped = false;
    std::int64_t epoch = 0;
    double scale = 0, lr = 0;
};

class Program {
  public:
    Program(const Group& group, nn::Mlp& model, int accumulation)
        : rank_(group->rank()),
          accumulation_(accumulation),
          model_(model),
          accelerator_({.mixed_precision = "fp16",
                        .gradient_accumulation_steps = accumulation,
                        .cpu = true,
                        .grad_scaler_kwargs =
                            accel::GradScalerKwargs{.init_scale = kInitScale, .growth_interval = 5},
                        .process_group = group}) {
        accelerator_.prepare(model_, adamw_, schedule_);
    }

    Record run(int number, const Update& update) {
        for (int i = 0; i < accumulation_; ++i) {
            auto scope = accelerator_.accumulate(model_);
            const bool faulty =
                update.fault && update.fault->rank == rank_ && update.fault->micro_batch == i;
            std::vector<double> values;
            for (int j = 0; j < 12; ++j)
                values.push_back(std::sin(j + 0.1 * rank_ + 7 * i + number));
            const Tensor x = tensor(values, {3, 4});
            const Tensor loss = tests::squared_error(model_(x), x.narrow(1, 0, 1));
            accelerator_.backward(faulty && update.fault->in_loss ? loss * update.fault->value
                                                                  : loss);
            if (faulty && !update.fault->in_loss) {
                const NoGrad no_grad;
                const Tensor gradient = model_.parameters()[update.fault->parameter].grad();
                gradient.view({-1})
                    .narrow(0, number % gradient.numel(), 1)
                    .fill_(update.fault->value);
            }
            if (update.clips && accelerator_.sync_gradients())
                accelerator_.clip_grad_norm_(model_.parameters(), 1);
            adamw_.step();
            schedule_.step();
            adamw_.zero_grad();
        }
        EXPECT_EQ(adamw_.step_was_skipped(), accelerator_.optimizer_step_was_skipped());
        return record();
    }

  private:
    Record record() {
        Record record{.weights = {},
                      .scaler = to_json(accelerator_.scaler()->state_dict()),
                      .skipped = accelerator_.optimizer_step_was_skipped(),
                      .epoch = schedule_.last_epoch(),
                      .scale = accelerator_.scaler()->get_scale(),
                      .lr = adamw_.param_groups()[0].lr};
        for (const Tensor& p : model_.parameters()) record.weights.push_back(p.detach().clone());
        for_each_tensor(adamw_.state_dict(),
                        [&](const Tensor& t) { record.weights.push_back(t.detach().clone()); });
        return record;
    }

    int rank_, accumulation_;
    nn::Mlp& model_;
    optim::AdamW adamw_{model_.parameters(), {.lr = 0.02}};
    optim::StepLR schedule_{adamw_, 1, 0.999};
    Accelerator accelerator_;
};

// Expects that the ranks skip exactly the updates with a fault, and that only the other updates
// change the weights and advance the schedule.
void expect_skips(const std::vector<Update>& updates, const std::vector<Record>& records,
                  int ranks) {
    ASSERT_EQ(records.size(), updates.size());
    const optim::GradScalerOptions defaults;
    double scale = kInitScale;
    std::int64_t epoch = 0, finite = 0;
    for (std::size_t i = 0; i < updates.size(); ++i) {
        SCOPED_TRACE(str("update ", i));
        const bool skipped = updates[i].fault.has_value();
        finite = skipped ? 0 : finite + 1;
        if (skipped) scale *= defaults.backoff_factor;
        if (finite == 5) scale *= defaults.growth_factor, finite = 0;
        if (!skipped) epoch += ranks;  // schedules count the batches of all processes
        EXPECT_EQ(records[i].skipped, skipped);
        EXPECT_EQ(records[i].scale, scale);
        EXPECT_EQ(records[i].epoch, epoch);
        if (testing::Test::HasFailure()) return;  // after a failure, later updates differ, too
        if (i == 0) continue;
        if (skipped) {
            tests::expect_same(records[i].weights, records[i - 1].weights);
            EXPECT_EQ(records[i].lr, records[i - 1].lr);
        } else {
            EXPECT_NE(records[i].weights[0].to_vector(), records[i - 1].weights[0].to_vector());
            EXPECT_LT(records[i].lr, records[i - 1].lr);
        }
    }
}

class Fp16OnRanks : public testing::TestWithParam<int> {};

TEST_P(Fp16OnRanks, SkipsTheSameStepsOnAllRanksIfOneGradientIsNotFinite) {
    const int ranks = GetParam();
    for (const int accumulation : {1, 2}) {
        SCOPED_TRACE(str(accumulation, " micro-batches per update"));
        manual_seed(3);
        const nn::Mlp initial({4, 6, 5, 1});
        auto models = tests::clones_of(initial, ranks);
        const std::vector<Update> updates =
            random_updates(ranks, accumulation, initial.parameters().size());
        std::vector<std::vector<Record>> records(static_cast<std::size_t>(ranks));
        tests::on_ranks(ranks, [&](const Group& group) {
            const auto rank = static_cast<std::size_t>(group->rank());
            Program program(group, models[rank], accumulation);
            for (int i = 0; i < kUpdates; ++i)
                records[rank].push_back(program.run(i, updates[static_cast<std::size_t>(i)]));
        });
        expect_skips(updates, records[0], ranks);
        for (std::size_t rank = 1; rank < records.size(); ++rank) {
            ASSERT_EQ(records[rank].size(), records[0].size()) << "on rank " << rank;
            for (std::size_t i = 0; i < records[0].size(); ++i) {
                SCOPED_TRACE(str("update ", i, " on rank ", rank));
                const Record &one = records[rank][i], &first = records[0][i];
                tests::expect_same(one.weights, first.weights);
                EXPECT_EQ(one.scaler, first.scaler);
                EXPECT_EQ(one.skipped, first.skipped);
                EXPECT_EQ(one.epoch, first.epoch);
                EXPECT_EQ(one.lr, first.lr);
                if (HasFailure()) return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Fp16OnRanks, testing::Values(2, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace axle
