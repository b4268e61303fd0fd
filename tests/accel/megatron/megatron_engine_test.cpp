// Tests MegatronEngine: training steps, functions of the plugin, evaluation and logs.
#include "accel/megatron/megatron_engine.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/prepare/deepspeed_objects.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "optim/schedules/schedules.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AbstractTrainStep;
using accel::AcceleratorOptions;
using accel::MegatronEngine;
using accel::MegatronLMPlugin;
using testing::DoubleNear;
using testing::Pointwise;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_batch;
using tests::pipeline_gpt;
using tests::TemporaryFolder;

constexpr std::int64_t kRows = 4, kBatches = 3, kTime = 4;

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin) {
    plugin.num_micro_batches = plugin.num_micro_batches.value_or(2);
    return {.cpu = true, .megatron_lm_plugin = std::move(plugin), .process_group = group};
}
AcceleratorOptions alone(MegatronLMPlugin plugin) {
    return options_of(dist::ProcessGroup::alone(), std::move(plugin));
}

// A prepared model with its optimizer, schedule and loader.
struct EngineRun {
    EngineRun(nn::Gpt&& model_, const AcceleratorOptions& options)
        : model(std::move(model_)),
          dataset(pipeline_batch(0, kRows * kBatches, kTime)),
          loader(dataset, {.batch_size = kRows}),
          accelerator(options) {
        accelerator.prepare(model, optimizer, loader, schedule);
    }

    nn::Gpt model;
    data::TensorDataset dataset;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    optim::StepLR schedule{optimizer, 1, 0.5};
    data::DataLoader loader;
    Accelerator accelerator;
};

// The loop of Accelerate calls step() and zero_grad() although the train step has already updated
// the parameters; both do nothing.
// Covers 5.MegatronLMOptimizerWrapper, 16.MegatronEngine.forward.
TEST(MegatronEngine, UpdatesInTheTrainStepAndIgnoresStepAndZeroGrad) {
    const nn::Gpt original = pipeline_gpt();
    EngineRun expected(original.clone(), alone({}));
    std::vector<double> losses;
    for (const Tree& batch : expected.loader) {
        losses.push_back(expected.accelerator.pipeline_step(expected.model, batch).item());
        expected.optimizer.step();
        expected.schedule.step();
        expected.optimizer.zero_grad();
    }
    auto models = clones_of(original, 2);
    on_ranks(2, [&](const Group& group) {
        EngineRun run(std::move(models[at(group)]), options_of(group, {.pp_degree = 2}));
        MegatronEngine engine(run.accelerator, run.model);
        std::vector<double> own;
        for (const Tree& batch : run.loader) {
            run.optimizer.zero_grad();
            own.push_back(engine(batch).loss.item());
            const double rate = run.schedule.get_last_lr()[0];
            run.optimizer.step();
            run.schedule.step();
            EXPECT_EQ(run.schedule.get_last_lr()[0], rate);
        }
        EXPECT_EQ(engine.iteration(), kBatches);
        EXPECT_EQ(run.schedule.last_epoch(), kBatches);
        EXPECT_THAT(own, Pointwise(DoubleNear(1e-9), losses));
        const nn::StateDict state = run.accelerator.get_state_dict(run.model);
        if (group->rank() == 0) tests::expect_same_state(state, expected.model.saved_state(), 1e-9);
    });
}

// Covers 5.MegatronLMOptimizerWrapper.
TEST(MegatronEngine, AllowsOptimizerStepsAfterPipelineStep) {
    EngineRun run(pipeline_gpt(), alone({}));
    MegatronEngine engine(run.accelerator, run.model);
    engine.train_step(pipeline_batch(0));
    const Tensor before = run.model.transformer.wpe.weight.detach().clone();
    run.accelerator.pipeline_step(run.model, pipeline_batch(1));
    run.optimizer.zero_grad();
    EXPECT_FALSE(run.model.transformer.wpe.weight.grad().defined());
    run.accelerator.pipeline_step(run.model, pipeline_batch(1));
    run.optimizer.step();
    EXPECT_NE(run.model.transformer.wpe.weight.detach().to_vector(), before.to_vector());
}

// Covers 5.MegatronLMOptimizerWrapper.
TEST(MegatronEngine, AdvancesTheScheduleOncePerWindowOfGradientAccumulation) {
    AcceleratorOptions options = alone({});
    options.gradient_accumulation_steps = 2;
    EngineRun run(pipeline_gpt(), options);
    MegatronEngine engine(run.accelerator, run.model);
    std::vector<double> rates;
    for (const Tree& batch : run.loader) {
        const auto scope = run.accelerator.accumulate(run.model);
        engine.train_step(batch);
        rates.push_back(run.schedule.get_last_lr()[0]);
    }
    EXPECT_THAT(rates, Pointwise(DoubleNear(1e-15), {0.01, 0.005, 0.0025}));
}

Tensor sum_of_squares(const Tensor& output, const Tree&) { return sum(output * output); }

// Covers 16.custom_train_step_class.
TEST(MegatronEngine, CallsTheFunctionsOfThePlugin) {
    EngineRun plain(pipeline_gpt(), alone({}));
    const Tree half = Tree{{"input_ids", pipeline_batch(3)["input_ids"].tensor().narrow(0, 0, 6)}};
    const double expected =
        plain.accelerator.pipeline_step(plain.model, half, sum_of_squares).item();
    EngineRun run(pipeline_gpt(),
                  alone({.custom_get_batch_function =
                             [](const Tree& batch) {
                                 return Tree{{"input_ids", batch["text"].tensor().narrow(0, 0, 6)}};
                             },
                         .custom_loss_function = sum_of_squares}));
    MegatronEngine engine(run.accelerator, run.model);
    const Tree text{{"text", pipeline_batch(3)["input_ids"]}};
    EXPECT_EQ(engine.eval_step(text).loss.item(), expected);
    EXPECT_EQ(engine.train_step(text).loss.item(), expected);
    EXPECT_NE(run.accelerator.pipeline_step(run.model, half).item(), expected);
    EngineRun other(pipeline_gpt(), alone({.custom_loss_function = sum_of_squares}));
    EXPECT_EQ(other.accelerator.pipeline_step(other.model, half).item(), expected);
}

// Scales the loss by an argument.
struct ScaledStep : AbstractTrainStep {
    explicit ScaledStep(const Tree& kwargs) : factor(kwargs["factor"].number()) {}
    Tree get_batch(const Tree& batch) override {
        return {{"input_ids", batch["ids"]}, {"labels", batch["ids"]}};
    }
    Tensor loss(const Tensor& output, const Tree& batch) override {
        return nn::label_loss(output, batch) * factor;
    }
    double factor;
};

// Covers 16.custom_train_step_class.
TEST(MegatronEngine, CreatesTheCustomTrainStepWithItsArgumentsAndRejectsNull) {
    const Tensor ids = pipeline_batch(2)["input_ids"].tensor();
    EngineRun plain(pipeline_gpt(), alone({}));
    MegatronEngine reference(plain.accelerator, plain.model);
    const double mean = reference.eval_step(Tree{{"input_ids", ids}, {"labels", ids}}).loss.item();
    EngineRun run(
        pipeline_gpt(),
        alone({.custom_train_step_class =
                   [](const Tree& kwargs) { return std::make_unique<ScaledStep>(kwargs); },
               .custom_train_step_kwargs = {{"factor", 3}}}));
    MegatronEngine engine(run.accelerator, run.model);
    EXPECT_NEAR(engine.train_step(Tree{{"ids", ids}}).loss.item(), 3 * mean, 1e-12);
    EngineRun empty(pipeline_gpt(), alone({.custom_train_step_class = [](const Tree&) {
                        return std::unique_ptr<AbstractTrainStep>();
                    }}));
    expect_error<UsageError>({"MegatronEngine: custom_train_step_class must not return null"},
                             [&] { MegatronEngine(empty.accelerator, empty.model); });
}

// Covers 16.custom_train_step_class.
TEST(ProvideModel, PreparesTheModelWithTheFunctionsOfThePluginAndRequiresAProvider) {
    MegatronLMPlugin plugin{
        .custom_model_provider_function = [] { return std::make_unique<nn::Gpt>(pipeline_gpt()); }};
    {
        Accelerator accelerator(alone(plugin));
        const auto model = accel::provide_model(accelerator);
        EXPECT_EQ(accelerator.pipeline(*model).schedule().micro_batches, 2);
        tests::expect_same_state(model->saved_state(), pipeline_gpt().saved_state(), 0);
    }
    plugin.custom_prepare_model_function = [](const MegatronLMPlugin::ModelProvider& provider) {
        auto model = provider();
        const NoGrad no_grad;
        for (const Tensor& parameter : model->parameters()) parameter.detach().fill_(0.5);
        return model;
    };
    Accelerator accelerator(alone(plugin));
    const auto model = accel::provide_model(accelerator);
    EXPECT_EQ(model->parameters()[0].detach().to_vector()[0], 0.5);
    Accelerator none(alone({}));
    expect_error<UsageError>(
        {"provide_model: custom_model_provider_function of the MegatronLMPlugin is not set"},
        [&] { accel::provide_model(none); });
    plugin.custom_model_provider_function = {};
    expect_error<ValueError>({"MegatronLMPlugin: custom_prepare_model_function needs "},
                             [&] { const Accelerator rejected(alone(plugin)); });
}

// Covers 16.tensorboard_dir.
TEST(MegatronEngine, ReturnsTheLogitsOfAllMicroBatchesOnTheLastRankIfAsked) {
    auto models = clones_of(pipeline_gpt(), 2);
    const Tree batch = pipeline_batch(0, 5);
    nn::Gpt whole = pipeline_gpt();
    const Tensor expected = whole(batch["input_ids"].tensor()).detach();
    on_ranks(2, [&](const Group& group) {
        EngineRun run(std::move(models[at(group)]),
                      options_of(group, {.pp_degree = 2, .return_logits = true}));
        MegatronEngine engine(run.accelerator, run.model);
        const Tensor evaluated = engine.eval_step(batch).logits;
        const Tensor trained = engine.train_step(batch).logits;
        EXPECT_EQ(trained.defined(), group->rank() == 1);
        if (!trained.defined()) return;
        tests::expect_close(evaluated, expected, 1e-12);
        tests::expect_close(trained, expected, 1e-12);
    });
    EngineRun run(pipeline_gpt(), alone({}));
    EXPECT_FALSE(MegatronEngine(run.accelerator, run.model).train_step(batch).logits.defined());
}

// Covers 16.tensorboard_dir.
TEST(MegatronEngine, RequestsAnEvaluationAtEachIntervalAndEvaluatesTheFirstBatches) {
    EngineRun run(pipeline_gpt(), alone({.eval_iters = 2, .eval_interval = 3}));
    MegatronEngine engine(run.accelerator, run.model);
    std::vector<bool> due = {engine.is_evaluation_due()};
    for (int step = 0; step < 6; ++step) {
        engine.train_step(pipeline_batch(step));
        due.push_back(engine.is_evaluation_due());
    }
    EXPECT_THAT(due, testing::ElementsAre(false, false, false, true, false, false, true));
    double sum = 0;
    int batches = 0;
    for (const Tree& batch : run.loader)
        if (batches++ < 2) sum += engine.eval_step(batch).loss.item();
    EXPECT_NEAR(engine.evaluate(run.loader), sum / 2, 1e-12);
    EXPECT_TRUE(run.model.is_training());
    EXPECT_EQ(engine.iteration(), 6);
}

// Returns the values that the only event file of a folder has for a tag.
std::vector<float> logged(const std::string& folder, const std::string& tag) {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        bytes += read_file(entry.path().string());
    std::vector<float> values;
    // A value is the length of the tag, the tag, the key 0x15 of the field simple_value, and an
    // f32.
    const std::string name = static_cast<char>(tag.size()) + tag + '\x15';
    for (auto found = bytes.find(name); found != std::string::npos;
         found = bytes.find(name, found + 1)) {
        float value = 0;
        std::memcpy(&value, bytes.data() + found + name.size(), sizeof value);
        values.push_back(value);
    }
    return values;
}

// Covers 16.tensorboard_dir.
TEST(MegatronEngine, LogsItsStepsAndEvaluations) {
    const TemporaryFolder few, all;
    for (const bool logs_all : {false, true}) {
        const TemporaryFolder& folder = logs_all ? all : few;
        auto models = clones_of(pipeline_gpt(), 2);
        on_ranks(2, [&](const Group& group) {
            EngineRun run(std::move(models[at(group)]),
                          options_of(group, {.gradient_clipping = 0.01,
                                             .tensorboard_dir = folder.path(),
                                             .set_all_logging_options = logs_all}));
            MegatronEngine engine(run.accelerator, run.model);
            std::vector<float> losses;
            for (int step = 0; step < 2; ++step)
                losses.push_back(
                    static_cast<float>(engine.train_step(pipeline_batch(step)).loss.item()));
            const double loss = engine.evaluate(run.loader);
            if (group->rank() != 0) return;
            EXPECT_EQ(logged(folder.path(), "lm loss"), losses);
            EXPECT_THAT(logged(folder.path(), "learning-rate"),
                        testing::ElementsAre(0.01f, 0.0025f));
            EXPECT_THAT(logged(folder.path(), "lm loss validation"),
                        testing::ElementsAre(static_cast<float>(loss)));
            const auto only_all = [&](const char* tag, const auto& matcher) {
                SCOPED_TRACE(tag);
                const std::vector<float> values = logged(folder.path(), tag);
                if (logs_all)
                    EXPECT_THAT(values, matcher);
                else
                    EXPECT_THAT(values, testing::IsEmpty());
            };
            only_all("batch-size", testing::ElementsAre(24.0f, 24.0f));
            only_all("world-size", testing::ElementsAre(2.0f, 2.0f));
            only_all("weight-decay", testing::ElementsAre(0.01f, 0.01f));
            only_all("grad-norm", testing::Each(testing::Gt(0.02f)));  // the norm before clipping
            only_all("lm loss validation ppl",
                     testing::ElementsAre(static_cast<float>(std::exp(loss))));
        });
    }
}

// Covers 16.megatron_dataset_flag.
TEST(MegatronEngine, RejectsSequencesLongerThanSeqLength) {
    EngineRun run(pipeline_gpt(), alone({.decoder_seq_length = 5}));
    MegatronEngine engine(run.accelerator, run.model);
    EXPECT_EQ(run.accelerator.options().megatron_lm_plugin->seq_length, 5);
    EXPECT_GT(engine.train_step(pipeline_batch(0, 4, 5)).loss.item(), 0);
    for (const bool trains : {true, false})
        expect_error<ValueError>(
            {trains ? "train_step: sequences must be at most seq_length 5: input_ids are [4, 6]"
                    : "eval_step: sequences must be at most seq_length 5: input_ids are [4, 6]"},
            [&] {
                const Tree batch = pipeline_batch(0, 4, 6);
                trains ? engine.train_step(batch) : engine.eval_step(batch);
            });
}

// The labels that follow the token 3 have no loss.
// Covers 16.megatron_dataset_flag.
TEST(MegatronEngine, MasksTheLabelsOfEndOfTextTokens) {
    const Tree batch = pipeline_batch(0);
    Tree masked = batch;
    masked.set("labels",
               where(eq(batch["input_ids"].tensor(), 3.0),
                     full_like(batch["labels"].tensor(), -100), batch["labels"].tensor()));
    EngineRun plain(pipeline_gpt(), alone({.average = "tokens"}));
    MegatronEngine reference(plain.accelerator, plain.model);
    const double expected = reference.eval_step(masked).loss.item();
    EXPECT_NE(reference.eval_step(batch).loss.item(), expected);
    EngineRun run(pipeline_gpt(),
                  alone({.eod_mask_loss = true, .eod_token = 3, .calculate_per_token_loss = true}));
    MegatronEngine engine(run.accelerator, run.model);
    EXPECT_EQ(engine.train_step(batch).loss.item(), expected);
}

// Ranks 0 and 1 have the first stage of the two replicas, ranks 2 and 3 the last stage.
// Covers 16.avg_losses_across_data_parallel_group.
TEST(DataParallelGroup, AveragesLossesAndGathersTensorsOfReplicasAndNeedsAMegatronPlugin) {
    on_ranks(4, [](const Group& group) {
        const Accelerator accelerator(options_of(group, {.pp_degree = 2}));
        const int replica = group->rank() % 2;
        const Tensor means = accel::avg_losses_across_data_parallel_group(
            accelerator, {tensor(1.0 + replica), tensor({4.0 * replica}, {1})});
        EXPECT_EQ(means.to_vector(), (std::vector<double>{1.5, 2}));
        const Tree all = accel::gather_across_data_parallel_groups(
            accelerator, Tree{{"loss", tensor(1.0 + replica)},
                              {"rows", tensor({10.0 * replica, group->rank() / 2}, {2})}});
        EXPECT_EQ(all["loss"].tensor().to_vector(), (std::vector<double>{1, 2}));
        const double stage = group->rank() / 2;
        EXPECT_EQ(all["rows"].tensor().to_vector(), (std::vector<double>{0, stage, 10, stage}));
    });
    const Accelerator one(alone({}));
    EXPECT_EQ(accel::avg_losses_across_data_parallel_group(one, {tensor(2.5)}).to_vector(),
              std::vector<double>{2.5});
    EXPECT_EQ(accel::gather_across_data_parallel_groups(one, tensor(2.5)).tensor().to_vector(),
              std::vector<double>{2.5});
    const Accelerator plain({.cpu = true});
    expect_error<UsageError>(
        {"avg_losses_across_data_parallel_group: the Accelerator has no megatron_lm_plugin"},
        [&] { accel::avg_losses_across_data_parallel_group(plain, {tensor(1.0)}); });
}

TEST(MegatronEngine, RejectsAModelWithoutAPipeline) {
    nn::Gpt model = pipeline_gpt();
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(model);
    expect_error<UsageError>({"MegatronEngine: the model has no pipeline"},
                             [&] { MegatronEngine(accelerator, model); });
}

TEST(ProvideModel, RequiresAMegatronLMPlugin) {
    Accelerator accelerator({.cpu = true});
    expect_error<UsageError>({"provide_model: the Accelerator has no megatron_lm_plugin"},
                             [&] { accel::provide_model(accelerator); });
}

}  // namespace
}  // namespace axle
