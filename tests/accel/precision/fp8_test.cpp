// Tests emulated fp8 training on the CPU: recipes, the layers that they convert, convergence, and
// checkpoints.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/config/fp8_recipes.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/log.h"
#include "gtest/gtest.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "nn/precision/float8.h"
#include "optim/adam.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::AORecipeKwargs;
using accel::Fp8Backend;
using accel::TERecipeKwargs;
using tests::expect_error;

// A network of six layers. The third layer has 24 outputs, which is not a multiple of 16.
struct Net : nn::Model<Net> {
    nn::ModuleList<nn::Linear> layers;
    Net() {
        for (const auto& [in, out] : {std::pair(16, 32), std::pair(32, 32), std::pair(32, 24),
                                      std::pair(24, 32), std::pair(32, 32), std::pair(32, 16)})
            layers.push_back(nn::Linear(in, out));
    }
    Tensor forward(Tensor x) {
        for (std::size_t i = 0; i < layers.size(); ++i)
            x = layers[i](x, i + 1 < layers.size() ? Activation::gelu : Activation::none);
        return x;
    }
    void visit(nn::Visitor& v) override { v("layers", layers); }
};

AcceleratorOptions ao(AORecipeKwargs recipe = {}) {
    recipe.emulate = true;
    return {.mixed_precision = "fp8", .cpu = true, .ao_recipe_kwargs = std::move(recipe)};
}
AcceleratorOptions te(TERecipeKwargs recipe = {}) {
    recipe.emulate = true;
    return {.mixed_precision = "fp8", .cpu = true, .te_recipe_kwargs = std::move(recipe)};
}

std::string converted(Net& net) {
    std::string which;
    for (std::size_t i = 0; i < net.layers.size(); ++i)
        if (net.layers[i].policy != nullptr) which += std::to_string(i);
    return which;
}

const nn::Float8Options& options_of(Net& net, std::size_t layer = 1) {
    return dynamic_cast<nn::Float8Linear&>(*net.layers[layer].policy).options();
}

class Environment {
  public:
    Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Environment() { unsetenv(name_); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    const char* name_;
};

class Log {
  public:
    Log() {
        set_log_sink([this](LogLevel, std::string_view text) { text_ += str(text, '|'); });
    }
    ~Log() { set_log_sink({}); }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    const std::string& text() const { return text_; }

  private:
    std::string text_;
};

// Covers 8.AORecipeKwargs, 2.fp8_enabled, 1.mixed_precision, 2.fp8_backend, 2.delayed_fp8_autocast,
// 2.has_fp8_handler.
TEST(Fp8, ConvertsInnerLayersWithSizesDivisibleBy16UnderCurrentScaling) {
    Accelerator accelerator(ao());
    Net net;
    accelerator.prepare(net);
    EXPECT_EQ(converted(net), "14");
    EXPECT_TRUE(accelerator.fp8_enabled());
    EXPECT_TRUE(accelerator.has_fp8_handler());
    EXPECT_FALSE(accelerator.delayed_fp8_autocast());
    EXPECT_EQ(accelerator.fp8_backend(), Fp8Backend::AO);
    EXPECT_EQ(accelerator.mixed_precision(), "fp8");
    EXPECT_EQ(options_of(net).scaling, nn::Float8Scaling::current);
    EXPECT_TRUE(options_of(net).in_evaluation);
    EXPECT_TRUE(net.named_buffers().empty());
}

// Covers 8.AORecipeKwargs.
TEST(Fp8, ConvertsLayersThatTheFilterSelects) {
    Accelerator accelerator(
        ao({.module_filter_func = [](const nn::Linear& layer, const std::string& name) {
            return name != "layers.1" && layer.weight.size(1) >= 16;
        }}));
    Net net;
    accelerator.prepare(net);
    EXPECT_EQ(converted(net), "045");
}

// Covers 8.fp8, 2.fp8_enabled.
TEST(Fp8, ConvertsLayersWithSizesDivisibleBy16UnderDelayedScaling) {
    Accelerator accelerator(te({.amax_history_len = 8}));
    Net net;
    accelerator.prepare(net);
    EXPECT_EQ(converted(net), "0145");
    EXPECT_EQ(accelerator.fp8_backend(), Fp8Backend::TE);
    EXPECT_EQ(net.layers[1].policy->named_buffers()[0].second.shape(), (Shape{8, 3}));
    const nn::Float8Options& options = options_of(net);
    EXPECT_EQ(options.forward, DType::f8_e4m3);
    EXPECT_EQ(options.gradient, DType::f8_e5m2);
    EXPECT_TRUE(options.most_recent);
    EXPECT_FALSE(options.in_evaluation);
    EXPECT_EQ(options.interval, 1);
    EXPECT_EQ(options.margin, 0);
}

TEST(Fp8, ConvertsLayersOnceIfPreparedTwice) {
    Accelerator accelerator(ao());
    Net net;
    accelerator.prepare(net);
    const auto* const policy = net.layers[1].policy.get();
    accelerator.prepare(net);
    EXPECT_EQ(net.layers[1].policy.get(), policy);
}

// Covers 8.fp8.
TEST(Fp8, ReturnsBf16FromLayersAndF32FromTheModel) {
    Accelerator accelerator(ao());
    Net net;
    accelerator.prepare(net);
    const auto guard = accelerator.autocast();
    EXPECT_EQ(net.layers[1](randn({4, 32})).dtype(), bf16);
    EXPECT_EQ(net(randn({4, 16})).dtype(), f32);
}

std::vector<double> losses_of(const AcceleratorOptions& options, int steps) {
    manual_seed(3);
    Net net;
    const Tensor x = randn({48, 16}), target = tanh(matmul(x, randn({16, 16}) * 0.3));
    optim::AdamW adamw(net.parameters(), {.lr = 5e-3, .weight_decay = 0});
    Accelerator accelerator(options);
    accelerator.prepare(net, adamw);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        const Tensor loss = tests::squared_error(net(x), target);
        accelerator.backward(loss);
        adamw.step();
        adamw.zero_grad();
        losses.push_back(loss.item());
    }
    return losses;
}

// E4M3 has 4 significant bits, so rounding has a relative error of at most 2^-4 and a root mean
// square error of about 2.6%. A product of two matrices with such errors has an error of 3.7%, and
// the output of four converted layers has an error of 7.5%. The losses therefore cannot fall below
// 0.56% of the first loss, which is about the mean square of the targets. The test permits
// four times this noise at the end. At the start, outputs are at most a third of the targets, so
// that the loss differs by at most 2 * 7.5% / 3.
// Covers 8.fp8, 8.AORecipeKwargs.
TEST(Fp8, ConvergesLikeBf16) {
    constexpr int kSteps = 150;
    constexpr double kNoise = 0.0056;  // noise of the last loss, relative to the first loss
    const std::vector<double> bf16_losses =
        losses_of({.mixed_precision = "bf16", .cpu = true}, kSteps);
    ASSERT_LT(bf16_losses.back(), 0.3 * bf16_losses.front());
    for (const AcceleratorOptions& options :
         {ao(), te({.amax_history_len = 16, .amax_compute_algo = "max"}),
          te({.fp8_format = "E4M3"})}) {
        const std::vector<double> losses = losses_of(options, kSteps);
        EXPECT_NE(losses.back(), bf16_losses.back());
        EXPECT_NEAR(losses.front(), bf16_losses.front(), 0.05 * bf16_losses.front());
        EXPECT_LT(losses.back(), bf16_losses.back() + 4 * kNoise * bf16_losses.front());
    }
}

// Covers 8.env, 27.ACCELERATE_FP8_BACKEND.
TEST(Fp8, ReadsMissingFieldsOfDelayedScalingFromTheEnvironment) {
    const Environment backend("ACCELERATE_FP8_BACKEND", "TE");
    const Environment format("ACCELERATE_FP8_FORMAT", "e4m3");
    const Environment margin("ACCELERATE_FP8_MARGIN", "2");
    const Environment interval("ACCELERATE_FP8_INTERVAL", "4");
    const Environment length("ACCELERATE_FP8_AMAX_HISTORY_LEN", "32");
    const Environment algorithm("ACCELERATE_FP8_AMAX_COMPUTE_ALGO", "MAX");
    const Environment wgrad("ACCELERATE_FP8_OVERRIDE_WGRAD", "true");
    const Environment eval("ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "1");
    Accelerator accelerator(te({.margin = 1}));
    Net net;
    accelerator.prepare(net);
    const nn::Float8Options& options = options_of(net);
    EXPECT_EQ(options.gradient, DType::f8_e4m3);
    EXPECT_EQ(options.margin, 1);  // the explicit value takes precedence
    EXPECT_EQ(options.interval, 4);
    EXPECT_EQ(options.history_length, 32);
    EXPECT_FALSE(options.most_recent);
    EXPECT_EQ(options.high_precision, (std::array<bool, 3>{false, false, true}));
    EXPECT_TRUE(options.in_evaluation);
}

// Covers 8.env.
TEST(Fp8, ReadsPadInnerDimFromTheEnvironment) {
    const Environment pad("ACCELERATE_FP8_PAD_INNER_DIM", "0");
    Accelerator accelerator(ao());
    Net net;
    accelerator.prepare(net);
    EXPECT_FALSE(options_of(net).pad_rows);
}

// Covers 1.kwargs_handlers, 8.fp8.
TEST(Fp8, RejectsInvalidRecipes) {
    expect_error<ValueError>({"Accelerator: fp8 recipes need mixed_precision 'fp8': 'bf16'"}, [] {
        Accelerator({.mixed_precision = "bf16", .cpu = true, .te_recipe_kwargs = {{}}});
    });
    const auto refused = [](const TERecipeKwargs& recipe, const char* text) {
        expect_error<ValueError>({text}, [&] { Accelerator accelerator(te(recipe)); });
    };
    refused({.fp8_format = "E3M4"},
            "Accelerator: fp8: fp8_format must be HYBRID, E4M3 or E5M2: 'e3m4'");
    refused({.amax_compute_algo = "mean"},
            "Accelerator: fp8: amax_compute_algo must be most_recent or max: 'mean'");
    refused({.amax_history_len = 0}, "Accelerator: fp8: amax_history_len must be at least 1: 0");
    refused({.interval = 0}, "Accelerator: fp8: interval must be at least 1: 0");
    refused(
        {.amax_history_len = 4, .use_mxfp8_block_scaling = true},
        "Accelerator: fp8: use_mxfp8_block_scaling cannot be combined with amax_history_len or");
    expect_error<accel::NotImplementedError>(
        {"Accelerator: fp8: use_mxfp8_block_scaling is not implemented"},
        [] { Accelerator accelerator(te({.use_mxfp8_block_scaling = true})); });
    const Environment backend("ACCELERATE_FP8_BACKEND", "MSAMP");
    expect_error<ValueError>({"ACCELERATE_FP8_BACKEND: must be AO, TE or NO: 'msamp'"}, [] {
        Accelerator accelerator({.mixed_precision = "fp8", .cpu = true});
    });
}

// Covers 1.mixed_precision.
TEST(Fp8, UsesBf16OnCpuWithoutEmulation) {
    const Log log;
    Accelerator accelerator({.mixed_precision = "fp8", .cpu = true});
    EXPECT_EQ(accelerator.mixed_precision(), "bf16");
    EXPECT_FALSE(accelerator.fp8_enabled());
    EXPECT_EQ(accelerator.fp8_backend(), Fp8Backend::NO);
    EXPECT_EQ(accelerator.scaler(), nullptr);
    EXPECT_NE(log.text().find("'fp8' needs a GPU of compute capability 8.9 or more; on cpu it "
                              "becomes 'bf16', unless the recipe sets emulate"),
              std::string::npos)
        << log.text();
    Net net;
    accelerator.prepare(net);
    EXPECT_EQ(converted(net), "");
}

TEST(Fp8, WarnsIfNoLayerCanUseFp8) {
    const Log log;
    Accelerator accelerator(ao());
    tests::SmallNet net;
    accelerator.prepare(net);
    EXPECT_NE(log.text().find("prepare: none of the model's 2 Linear layers can use fp8"),
              std::string::npos)
        << log.text();
}

// Covers 8.fp8.
TEST(Fp8, RestoresAmaxHistoryFromCheckpoints) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "state";
    manual_seed(3);
    const Tensor x = randn({8, 16});
    const auto step = [&](Net& net, Accelerator& accelerator, double size) {
        accelerator.backward(sum(net(x * size)));
        net.zero_grad();
    };
    std::vector<double> saved;
    {
        Net net;
        Accelerator accelerator(te({.amax_history_len = 4}));
        accelerator.prepare(net);
        for (const double size : {1.0, 2.0, 0.5}) step(net, accelerator, size);
        accelerator.save_state(path);
        saved = net.layers[1].policy->named_buffers()[0].second.to_vector();
        EXPECT_GT(saved[0], 0);
    }
    Net net;
    Accelerator accelerator(te({.amax_history_len = 4}));
    accelerator.prepare(net);
    accelerator.load_state(path);
    EXPECT_EQ(net.layers[1].policy->named_buffers()[0].second.to_vector(), saved);
}

// Covers 8.fp8.
TEST(Fp8, ResumesWithTheSameGradientsBetweenUpdatesOfTheScales) {
    constexpr int kSteps = 8;
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    const auto options = [] { return te({.interval = 3, .amax_history_len = 4}); };
    struct Training {
        explicit Training(const AcceleratorOptions& options) : accelerator(options) {
            accelerator.prepare(net);
        }
        // Returns the gradient of a training step. It depends on the scales.
        Tensor step(int number) {
            net.zero_grad();
            accelerator.backward(sum(net(x * (1 + number * 1.7))));
            return net.layers[1].weight.grad().clone();
        }
        Net net = (manual_seed(4), Net());
        Tensor x = randn({8, 16});
        Accelerator accelerator;
    };
    Training whole(options());
    std::vector<Tensor> gradients;
    for (int step = 0; step < kSteps; ++step) {
        gradients.push_back(whole.step(step));
        whole.accelerator.save_state(folder / str("after_", step + 1));
    }
    for (int done = 1; done < kSteps; ++done) {
        SCOPED_TRACE(str("after ", done, " steps"));
        Training resumed(options());
        resumed.accelerator.load_state(folder / str("after_", done));
        for (int step = done; step < kSteps; ++step)
            tests::expect_same_bits(resumed.step(step), gradients[static_cast<std::size_t>(step)]);
    }
}

TEST(Fp8, HasEqualScalesInAllReplicas) {
    std::vector<Net> nets(2);
    tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        AcceleratorOptions options = te({.amax_history_len = 4});
        options.process_group = group;
        Accelerator accelerator(options);
        EXPECT_TRUE(accelerator.delayed_fp8_autocast());
        Net& net = nets[static_cast<std::size_t>(group->rank())];
        accelerator.prepare(net);
        for (int step = 0; step < 3; ++step) {
            const Tensor x = full({8, 16}, 1.0 + step + group->rank());
            accelerator.backward(sum(net(x)));
            net.zero_grad();
        }
        net(full({8, 16}, 1.0));
        const Tensor scale = net.layers[1].policy->named_buffers()[1].second;
        const std::vector<Tensor> all = dist::gather(*group, std::vector<Tensor>{scale});
        const Tensor both = all[0].reshape({2, -1});
        EXPECT_EQ(both[0].to_vector(), both[1].to_vector());
        EXPECT_NE(both[0].to_vector()[0], 1);
    });
}

}  // namespace
}  // namespace axle
