// The optimizers of the recordings in tests/golden/optim.json.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "optim/adam.h"
#include "optim/algorithms/adafactor.h"
#include "optim/algorithms/adagrad.h"
#include "optim/algorithms/adam_variants.h"
#include "optim/algorithms/layerwise.h"
#include "optim/algorithms/lion.h"
#include "optim/algorithms/muon.h"
#include "optim/sgd.h"
#include "tests/optim/recorded_parameters.h"

namespace axle::tests {

struct RecordedOptimizer {
    const char* name;
    std::function<std::unique_ptr<optim::Optimizer>(const Params&)> make;
};

// Returns whether the optimizer updates parameters with tensor ops.
inline bool uses_tensor_ops(std::string_view name) {
    for (const char* prefix : {"adafactor", "lamb", "lars", "muon"})
        if (name.starts_with(prefix)) return true;
    return false;
}

template <class O, class Options>
RecordedOptimizer recorded_as(const char* name, Options options) {
    return {name, [=](const Params& params) { return std::make_unique<O>(params, options); }};
}

inline std::vector<RecordedOptimizer> recorded_optimizers() {
    using namespace optim;  // NOLINT: only in this function
    const auto sgd = recorded_as<SGD, SGDOptions>;
    const auto adam = recorded_as<Adam, AdamOptions>;
    const auto adamw = recorded_as<AdamW, AdamWOptions>;
    const auto rmsprop = recorded_as<RMSprop, RMSpropOptions>;
    const auto adagrad = recorded_as<Adagrad, AdagradOptions>;
    const auto adadelta = recorded_as<Adadelta, AdadeltaOptions>;
    const auto adamax = recorded_as<Adamax, AdamaxOptions>;
    const auto nadam = recorded_as<NAdam, NAdamOptions>;
    const auto radam = recorded_as<RAdam, RAdamOptions>;
    const auto lion = recorded_as<Lion, LionOptions>;
    const auto rprop = recorded_as<Rprop, RpropOptions>;
    const auto asgd = recorded_as<ASGD, ASGDOptions>;
    const auto adafactor = recorded_as<Adafactor, AdafactorOptions>;
    const auto lamb = recorded_as<LAMB, LAMBOptions>;
    const auto lars = recorded_as<LARS, LARSOptions>;
    // Muon optimizes the first parameter, which is a matrix.
    const auto muon = [](const char* name, const MuonOptions& options) {
        return RecordedOptimizer{name, [=](const Params& params) {
                                     return std::make_unique<Muon>(Params{params[0]}, options);
                                 }};
    };
    return {
        sgd("sgd", {.lr = 0.05}),
        sgd("sgd_weight_decay", {.lr = 0.05, .weight_decay = 0.1}),
        sgd("sgd_momentum", {.lr = 0.02, .momentum = 0.9, .dampening = 0.3}),
        sgd("sgd_nesterov", {.lr = 0.02, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
        sgd("sgd_maximize", {.lr = 0.01, .momentum = 0.5, .maximize = true}),
        adam("adam", {.lr = 0.03}),
        adam("adam_weight_decay", {.lr = 0.03, .betas = {0.8, 0.99}, .weight_decay = 0.1}),
        adam("adam_amsgrad", {.lr = 0.03, .betas = {0.9, 0.7}, .amsgrad = true}),
        adamw("adamw", {.lr = 0.03, .betas = {0.9, 0.95}, .weight_decay = 0.1}),
        adamw("adamw_defaults", {}),
        adamw("adamw_amsgrad_maximize", {.lr = 0.01, .amsgrad = true, .maximize = true}),
        {"adamw_two_groups",
         [](const Params& p) {
             return std::make_unique<AdamW>(
                 std::vector<AdamW::Group>{{{p[0]}, {.lr = 0.02, .weight_decay = 0.2}},
                                           {{p[1]}, {.lr = 0.1, .weight_decay = 0}}});
         }},
        rmsprop("rmsprop", {}),
        rmsprop("rmsprop_weight_decay",
                {.lr = 0.02, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.1}),
        rmsprop("rmsprop_momentum", {.lr = 0.01, .momentum = 0.8}),
        rmsprop("rmsprop_centered", {.lr = 0.02, .alpha = 0.95, .centered = true}),
        rmsprop("rmsprop_centered_momentum", {.lr = 0.005,
                                              .weight_decay = 0.05,
                                              .momentum = 0.9,
                                              .centered = true,
                                              .maximize = true}),
        {"rmsprop_two_groups",
         [](const Params& p) {
             return std::make_unique<RMSprop>(std::vector<RMSprop::Group>{
                 {{p[0]}, {.momentum = 0.5}}, {{p[1]}, {.lr = 0.03, .centered = true}}});
         }},
        adagrad("adagrad", {}),
        adagrad("adagrad_decays", {.lr = 0.1,
                                   .lr_decay = 0.05,
                                   .weight_decay = 0.1,
                                   .initial_accumulator_value = 0.3,
                                   .eps = 1e-4}),
        adagrad("adagrad_maximize", {.lr = 0.03, .maximize = true}),
        adadelta("adadelta", {}),
        adadelta("adadelta_weight_decay", {.lr = 2, .rho = 0.8, .eps = 1e-3, .weight_decay = 0.1}),
        adadelta("adadelta_maximize", {.lr = 0.5, .maximize = true}),
        adamax("adamax", {.lr = 0.02}),
        adamax(
            "adamax_weight_decay",
            {.lr = 0.03, .betas = {0.8, 0.9}, .eps = 1e-2, .weight_decay = 0.1, .maximize = true}),
        nadam("nadam", {.lr = 0.02}),
        nadam("nadam_weight_decay", {.lr = 0.03, .betas = {0.8, 0.99}, .weight_decay = 0.1}),
        nadam("nadam_decoupled", {.lr = 0.02,
                                  .weight_decay = 0.2,
                                  .momentum_decay = 0.1,
                                  .decoupled_weight_decay = true,
                                  .maximize = true}),
        radam("radam", {.lr = 0.03}),
        radam("radam_weight_decay",
              {.lr = 0.03, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = 0.1}),
        radam("radam_decoupled",
              {.lr = 0.02, .weight_decay = 0.2, .decoupled_weight_decay = true, .maximize = true}),
        lion("lion", {.lr = 0.02}),
        lion("lion_weight_decay", {.lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.3}),
        lion("lion_maximize", {.lr = 0.01, .maximize = true}),
        muon("muon", {.lr = 0.02}),
        muon("muon_rms", {.lr = 0.05,
                          .weight_decay = 0.2,
                          .momentum = 0.8,
                          .nesterov = false,
                          .ns_steps = 3,
                          .adjust_lr_fn = "match_rms_adamw"}),
        muon("muon_spectral", {.lr = 0.05,
                               .ns_coefficients = {2.0, -1.5, 0.5},
                               .adjust_lr_fn = "spectral_unclamped"}),
        lamb("lamb", {.lr = 0.02}),
        lamb("lamb_weight_decay",
             {.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = 0.2, .maximize = true}),
        lars("lars", {.lr = 2.0}),
        lars("lars_weight_decay", {.lr = 0.3,
                                   .momentum = 0.5,
                                   .weight_decay = 0.1,
                                   .trust_coefficient = 0.1,
                                   .eps = 1e-2,
                                   .maximize = true}),
        rprop("rprop", {}),
        rprop("rprop_etas", {.lr = 0.05, .etas = {0.3, 1.5}, .step_sizes = {0.01, 0.08}}),
        rprop("rprop_maximize", {.lr = 0.001, .maximize = true}),
        asgd("asgd", {.lr = 0.05}),
        asgd("asgd_averages",
             {.lr = 0.1, .lambd = 0.1, .alpha = 0.6, .t0 = 10, .weight_decay = 0.1}),
        asgd("asgd_maximize", {.lr = 0.01, .maximize = true}),
        adafactor("adafactor", {}),
        adafactor("adafactor_options", {.lr = 0.1,
                                        .beta2_decay = -0.6,
                                        .eps = {0.5, 0.8},
                                        .d = 1.2,
                                        .weight_decay = 0.1,
                                        .maximize = true}),
    };
}

}  // namespace axle::tests
