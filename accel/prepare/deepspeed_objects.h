// Optimizers and schedules that a DeepSpeed configuration describes, and values of the
// configuration that depend on the prepared objects.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "core/tensor.h"
#include "nn/module.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// A placeholder for the optimizer in the section "optimizer" of a configuration. prepare() creates
// the optimizer, and the placeholder then refers to it:
//     accel::DummyOptim dummy(net.parameters(), 1e-3);
//     auto [model, optimizer] = accelerator.prepare(net, dummy);
//     optimizer.step();
struct DummyOptim {
    struct Group {
        std::vector<Tensor> params;
        // The options of the group. If nullopt, the value of the configuration is used.
        std::optional<double> lr = {}, weight_decay = {};
    };

    DummyOptim(std::vector<Tensor> params, double lr_ = 1e-3, double weight_decay_ = 0);
    DummyOptim(std::vector<Group> groups_, double lr_ = 1e-3, double weight_decay_ = 0);

    std::vector<Group> groups;
    double lr, weight_decay;  // replace "auto" in the configuration
    // An optional function that creates the optimizer when there is no configuration, or when the
    // configuration has no section "optimizer".
    std::function<std::unique_ptr<optim::Optimizer>()> optimizer_callable = {};
    std::unique_ptr<optim::Optimizer> created = {};  // set by prepare()

    // Return the optimizer. Throw UsageError before prepare().
    optim::Optimizer& operator*() const;
    optim::Optimizer* operator->() const { return &**this; }
    operator optim::Optimizer&() const { return **this; }  // NOLINT: stands for the optimizer
    // Call the optimizer's functions.
    void step() const { (**this).step(); }
    void zero_grad(bool set_to_none = true) const { (**this).zero_grad(set_to_none); }
    std::vector<optim::GroupRef> param_groups() const { return (**this).param_groups(); }
};

// A placeholder for the schedule in the section "scheduler" of a DeepSpeed configuration, or for
// the schedule of a MegatronLMPlugin. prepare() creates the schedule for the optimizer in the same
// call. The schedule advances by one step per update, with any number of processes.
struct DummyScheduler {
    // The number of steps of a run on one process; it is divided by the number of processes with
    // different samples. Replaces "auto" in the configuration.
    std::optional<std::int64_t> total_num_steps = {};
    std::int64_t warmup_num_steps = 0;  // replaces "auto"; 0 counts as 1 for DeepSpeed
    // An optional function that creates the schedule when there is no configuration, or when the
    // configuration has no section "scheduler". This schedule advances like any other prepared
    // schedule.
    std::function<std::unique_ptr<optim::Scheduler>(optim::Optimizer&)> lr_scheduler_callable = {};
    std::unique_ptr<optim::Scheduler> created = {};  // set by prepare()

    // Return the schedule. Throw UsageError before prepare().
    optim::Scheduler& operator*() const;
    optim::Scheduler* operator->() const { return &**this; }
    operator optim::Scheduler&() const { return **this; }  // NOLINT: stands for the schedule
    // Call the schedule's functions.
    void step() const { (**this).step(); }
    const std::vector<double>& get_last_lr() const { return (**this).get_last_lr(); }
};

// The placeholder's name in Accelerate for a MegatronLMPlugin.
using MegatronLMDummyScheduler = DummyScheduler;

// Private to accel: creates the optimizer of the section "optimizer", and replaces "auto" for its
// lr and weight_decay in the configuration. The types are Adam (with decoupled weight decay, unless
// adam_w_mode is false), AdamW and SGD; case is ignored. weight_decay is 0 by default. Throws
// ValueError if the section is missing or invalid, and NotImplementedError for other types.
std::unique_ptr<optim::Optimizer> make_optimizer(DeepSpeedConfig& config, const DummyOptim& dummy);

// Private to accel: creates the schedule of the section "scheduler". Replaces "auto" in the
// configuration; total_num_steps is divided by num_processes and rounded up. The types are
// WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest. As in DeepSpeed, a step of the
// schedule is an update, and the first step keeps the rate at the start of the warmup. If OneCycle
// cycles Adam's first beta, it sets the second beta to 0.99. Throws ValueError if the section is
// missing or invalid. The optimizer must outlive the schedule.
std::unique_ptr<optim::Scheduler> make_scheduler(DeepSpeedConfig& config,
                                                 optim::Optimizer& optimizer,
                                                 const DummyScheduler& dummy, int num_processes);

// The objects that are prepared together. Values of the configuration depend on them.
struct DeepSpeedObjects {
    // The batch size of each loader on one process, or nullopt if the loader has none.
    std::vector<std::optional<std::int64_t>> batch_sizes = {};
    int data_parallel_size = 1;  // the number of processes with different batches
    bool has_model = false;
    std::optional<std::int64_t> hidden_size = {};  // hidden_size_of(model)
    bool has_optimizer = false;                    // an optimizer other than a DummyOptim
    bool has_scheduler = false;                    // a schedule other than a DummyScheduler
    const DummyOptim* dummy_optim = nullptr;
    const DummyScheduler* dummy_scheduler = nullptr;
};

// Private to accel: replaces "auto" in the configuration of a resolved plugin. prepare() calls this
// function with the objects of each call. If there are loaders, train_micro_batch_size_per_gpu and
// train_batch_size are computed from their batch sizes. gradient_clipping becomes 1.0,
// gradient_accumulation_steps the value of the plugin, and
// stage3_gather_16bit_weights_on_model_save false. If there is a model with hidden size h,
// reduce_bucket_size becomes h * h, stage3_prefetch_bucket_size 0.9 * h * h, and
// stage3_param_persistence_threshold 10 * h.
//
// Throws ValueError if
// - there is a model, and another value outside of the sections optimizer and scheduler is "auto",
//   or the model has no known hidden size and a bucket size is "auto",
// - train_micro_batch_size_per_gpu is not a positive integer, or it is "auto" and a loader has no
//   batch size,
// - train_batch_size is not train_micro_batch_size_per_gpu * gradient_accumulation_steps *
//   data_parallel_size,
// - an optimizer or schedule is given both in the program and in the configuration, or
// - a placeholder is given without its section and without a function that creates the object, or a
//   DummyOptim for the section optimizer with a schedule other than a DummyScheduler.
void fill_deepspeed_config(DeepSpeedPlugin& plugin, const DeepSpeedObjects& objects);

// Returns the width of a GPT, Llama or BERT model, or nullopt for other models.
std::optional<std::int64_t> hidden_size_of(const nn::Module& model);

}  // namespace axle::accel
