// Tests mixed precision in f16 with pipelines: the processes have gradients of different layers,
// but skip the same steps.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "optim/grad_scaler.h"
#include "optim/sgd.h"
#include "tests/dist/pipeline/pipeline_models.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronLMPlugin;
using tests::at;
using tests::clones_of;
using tests::Group;
using tests::on_ranks;

constexpr std::int64_t kRows = 4;
constexpr double kInitScale = 4096;

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin,
                              int growth_interval = 2) {
    plugin.gradient_clipping = plugin.gradient_clipping.value_or(0);
    AcceleratorOptions options{.mixed_precision = "fp16",
                               .cpu = true,
                               .megatron_lm_plugin = std::move(plugin),
                               .process_group = group};
    options.grad_scaler_kwargs =
        accel::GradScalerKwargs{.init_scale = kInitScale, .growth_interval = growth_interval};
    return options;
}

// The steps of a training run.
struct Record {
    std::vector<double> losses, scales;
    std::vector<bool> skipped;
    nn::StateDict state;  // the final state, on rank 0
};

// Trains with micro-batches of one row. In step `fault`, a gradient of rank `faulty` is infinite.
Record train(nn::Gpt& model, const Group& group, const MegatronLMPlugin& plugin, int replicas,
             int fault, int faulty) {
    Accelerator accelerator(options_of(group, plugin));
    optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    accelerator.prepare(model, optimizer);
    const std::int64_t rows = kRows / replicas;
    Record record;
    for (int step = 0; step < 5; ++step) {
        const std::int64_t begin = accelerator.data_parallel_rank() * rows;
        const Tree batch = slice_tensors(tests::pipeline_batch(step, kRows), begin, begin + rows);
        record.losses.push_back(accelerator.pipeline_step(model, batch).item());
        if (step == fault && group->rank() == faulty) {
            const NoGrad no_grad;
            const Tensor weight = accelerator.pipeline(model).parameters().back();
            const Tensor gradient = autograd::local_part(weight).grad();
            gradient.view({-1}).narrow(0, 0, 1).fill_(std::numeric_limits<double>::infinity());
        }
        optimizer.step();
        optimizer.zero_grad();
        record.skipped.push_back(accelerator.optimizer_step_was_skipped());
        record.scales.push_back(accelerator.scaler()->get_scale());
        EXPECT_EQ(optimizer.step_was_skipped(), record.skipped.back());
    }
    record.state = accelerator.get_state_dict(model);
    return record;
}

// Trains like train(), but on one process. The loop accumulates four micro-batches per update.
Record train_whole(nn::Gpt& model, int fault, double max_norm) {
    AcceleratorOptions options = options_of(dist::ProcessGroup::alone(), {});
    options.megatron_lm_plugin.reset();
    options.gradient_accumulation_steps = kRows;
    Accelerator accelerator(options);
    optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    accelerator.prepare(model, optimizer);
    Record record;
    for (int step = 0; step < 5; ++step) {
        double sum = 0;
        for (std::int64_t row = 0; row < kRows; ++row) {
            const auto scope = accelerator.accumulate(model);
            const Tree batch = slice_tensors(tests::pipeline_batch(step, kRows), row, row + 1);
            const Tensor loss = nn::label_loss(model(batch["input_ids"].tensor()), batch);
            accelerator.backward(loss);
            sum += loss.item();
            if (row == kRows - 1 && step == fault) {
                const NoGrad no_grad;
                model.parameters()[0].grad().fill_(std::numeric_limits<double>::infinity());
            }
            if (accelerator.sync_gradients() && max_norm > 0)
                accelerator.clip_grad_norm_(model.parameters(), max_norm);
            optimizer.step();
            optimizer.zero_grad();
        }
        record.losses.push_back(sum / kRows);
        record.skipped.push_back(accelerator.optimizer_step_was_skipped());
        record.scales.push_back(accelerator.scaler()->get_scale());
    }
    return record;
}

void expect_same_training(const MegatronLMPlugin& plugin, int ranks, int replicas, int fault,
                          int faulty) {
    const nn::Gpt original = tests::pipeline_gpt(f32);
    nn::Gpt whole = original.clone();
    const Record expected = train_whole(whole, fault, plugin.gradient_clipping.value_or(0));
    auto models = clones_of(original, ranks);
    std::vector<Record> records(models.size());
    on_ranks(ranks, [&](const Group& group) {
        records[at(group)] = train(models[at(group)], group, plugin, replicas, fault, faulty);
    });
    for (const Record& record : records) {
        EXPECT_THAT(record.losses, testing::Pointwise(testing::DoubleNear(1e-4), expected.losses));
        EXPECT_EQ(record.scales, expected.scales);
        EXPECT_EQ(record.skipped, expected.skipped);
    }
    tests::expect_same_state(records[0].state, whole.saved_state(), 1e-4);
}

// Covers 16.MegatronEngine.forward, 8.GradScaler.
TEST(Fp16Pipeline, TrainsLikeOneProcess) {
    const int never = -1;
    for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"})
        expect_same_training({.pp_degree = 2, .num_micro_batches = 4, .schedule = schedule}, 2, 1,
                             never, 0);
    expect_same_training({.pp_degree = 3, .num_micro_batches = 4, .gradient_clipping = 0.125}, 3, 1,
                         never, 0);
    expect_same_training(
        {.pp_degree = 2, .num_micro_batches = 2, .use_distributed_optimizer = true}, 4, 2, never,
        0);
}

TEST(Fp16Pipeline, SkipsTheStepOnAllProcessesIfOneStageOverflows) {
    for (int faulty = 0; faulty < 4; ++faulty) {
        SCOPED_TRACE(testing::Message() << "rank " << faulty << " overflows");
        expect_same_training({.pp_degree = 2,
                              .num_micro_batches = 2,
                              .gradient_clipping = faulty % 2 == 0 ? 0 : 0.125},
                             4, 2, 1, faulty);
    }
}

// Two layers. With a loss scale of 512 or more, the scaled gradient of the first layer's output
// overflows in f16, because the weights of the second layer are large.
struct LargeWeights : nn::Model<LargeWeights> {
    nn::Linear in{4, 8}, out{8, 1};

    LargeWeights() {
        const NoGrad no_grad;
        in.weight.fill_(1e-4);
        out.weight.fill_(256);
    }
    Tensor forward(const Tensor& x) { return out(in(x)); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out); }

    static std::vector<nn::Piece> pieces(nn::Module& module) {
        auto& model = dynamic_cast<LargeWeights&>(module);
        return {{.name = "in",
                 .modules = {&model.in},
                 .forward = [&model](const Tensor&,
                                     const Tree& batch) { return model.in(batch["x"].tensor()); }},
                {.name = "out",
                 .modules = {&model.out},
                 .forward = [&model](const Tensor& x, const Tree&) { return model.out(x); }}};
    }
};

Tensor mean_loss(const Tensor& y, const Tree&) { return mean(y); }

TEST(Fp16Pipeline, HalvesTheScaleUntilTheGradientsOfAllStagesAreFinite) {
    on_ranks(2, [](const Group& group) {
        LargeWeights model;
        Accelerator accelerator(
            options_of(group, {.pp_degree = 2, .num_micro_batches = 2, .pieces = model.pieces}));
        optim::SGD optimizer(model.parameters(), {.lr = 1});
        accelerator.prepare(model, optimizer);
        const Tensor own = group->rank() == 0 ? model.in.weight : model.out.weight;
        const std::vector<double> before = own.to_vector();
        double scale = kInitScale;
        for (int step = 0; step < 5; ++step) {
            accelerator.pipeline_step(model, Tree{{"x", ones({2, 4})}}, mean_loss);
            const bool is_finite = std::isfinite(sum(own.grad()).item());
            // 256 * scale / 2 exceeds the largest f16, 65504, if the scale is at least 512.
            const bool overflows = scale > 511;
            EXPECT_EQ(is_finite, group->rank() == 1 || !overflows) << "step " << step;
            optimizer.step();
            optimizer.zero_grad();
            EXPECT_EQ(optimizer.step_was_skipped(), overflows);
            if (overflows) {
                scale /= 2;
                EXPECT_EQ(own.to_vector(), before);
            }
            EXPECT_EQ(accelerator.scaler()->get_scale(), scale);
        }
        EXPECT_NE(own.to_vector(), before);
    });
}

// Each optimizer has gradients on one process, but all processes count its steps.
TEST(Fp16Pipeline, UpdatesTheScaleOnceForOptimizersOfDifferentStages) {
    for (const bool in_scope : {true, false})
        on_ranks(2, [in_scope](const Group& group) {
            LargeWeights model;
            Accelerator accelerator(options_of(group, {.pp_degree = 2, .pieces = model.pieces}, 1));
            optim::SGD first(model.in.parameters(), {.lr = 1e-6});
            optim::SGD second(model.out.parameters(), {.lr = 1e-6});
            accelerator.prepare(model, first, second);
            accelerator.scaler()->update(1);
            double scale = 1;
            const auto train_step = [&] {
                accelerator.pipeline_step(model, Tree{{"x", ones({2, 4})}}, mean_loss);
                first.step();
                EXPECT_EQ(accelerator.scaler()->get_scale(), scale);
                second.step();
                scale *= 2;
                EXPECT_EQ(accelerator.scaler()->get_scale(), scale);
                first.zero_grad();
                second.zero_grad();
            };
            for (int step = 0; step < 3; ++step) {
                if (!in_scope) {
                    train_step();
                    continue;
                }
                const auto scope = accelerator.accumulate(model);
                train_step();
            }
        });
}

}  // namespace
}  // namespace axle
