// The configuration of train_template. train_template.yaml explains the options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "accel/config/structured_config.h"
#include "core/text/text.h"
#include "kernels/error.h"

struct ModelConfig {
    std::int64_t num_classes = 10;
    bool freeze_features = false;

    void visit(axle::accel::ConfigFields& v) {
        v("num_classes", num_classes), v("freeze_features", freeze_features);
    }
};

struct DataConfig {
    axle::accel::Required<std::string> data_dir;
    axle::accel::Required<std::int64_t> batch_size;
    std::int64_t num_workers = 4;
    bool pin_memory = true, drop_last = true;

    void visit(axle::accel::ConfigFields& v) {
        v("data_dir", data_dir), v("batch_size", batch_size), v("num_workers", num_workers);
        v("pin_memory", pin_memory), v("drop_last", drop_last);
    }
};

struct SchedulerConfig {
    std::string name = "constant";
    std::optional<std::int64_t> num_warmup_steps;

    void visit(axle::accel::ConfigFields& v) {
        v("name", name), v("num_warmup_steps", num_warmup_steps);
    }
};

struct OptimizerConfig {
    double learning_rate = 1e-3;
    double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_weight_decay = 0.01, adam_epsilon = 1e-8;

    void visit(axle::accel::ConfigFields& v) {
        v("learning_rate", learning_rate), v("adam_beta1", adam_beta1);
        v("adam_beta2", adam_beta2), v("adam_weight_decay", adam_weight_decay);
        v("adam_epsilon", adam_epsilon);
    }
};

struct TrainingConfig {
    axle::accel::Required<std::string> project_name, exp_name;
    std::string output_dir = "runs";
    axle::accel::Required<std::int64_t> num_epochs;
    std::uint64_t seed = 42;
    std::int64_t gradient_accumulation_steps = 1;
    std::string mixed_precision = "fp16";
    bool cpu = false, allow_tf32 = true;
    std::optional<std::string> resume_from_checkpoint;
    std::string save_strategy = "steps";
    std::int64_t checkpoint_steps = 500;
    std::optional<std::int64_t> eval_steps;
    std::optional<double> max_grad_norm = 1.0, clip_value;
    std::optional<std::vector<std::string>> report_to;

    void visit(axle::accel::ConfigFields& v) {
        v("project_name", project_name), v("exp_name", exp_name), v("output_dir", output_dir);
        v("num_epochs", num_epochs), v("seed", seed);
        v("gradient_accumulation_steps", gradient_accumulation_steps);
        v("mixed_precision", mixed_precision), v("cpu", cpu), v("allow_tf32", allow_tf32);
        v("resume_from_checkpoint", resume_from_checkpoint);
        v("save_strategy", save_strategy), v("checkpoint_steps", checkpoint_steps);
        v("eval_steps", eval_steps), v("max_grad_norm", max_grad_norm);
        v("clip_value", clip_value), v("report_to", report_to);
    }
};

struct Config {
    ModelConfig model;
    DataConfig data;
    SchedulerConfig scheduler;
    OptimizerConfig optimizer;
    TrainingConfig training;

    void visit(axle::accel::ConfigFields& v) {
        v("model", model), v("data", data), v("scheduler", scheduler);
        v("optimizer", optimizer), v("training", training);
    }
    // Throws ValueError if save_strategy, checkpoint_steps or eval_steps is invalid.
    void check() const {
        const TrainingConfig& t = training;
        if (t.save_strategy != "steps" && t.save_strategy != "epoch")
            throw axle::ValueError("config: training.save_strategy must be steps or epoch: " +
                                   axle::in_quotes(t.save_strategy));
        if (t.checkpoint_steps < 1 || t.eval_steps.value_or(1) < 1)
            throw axle::ValueError(
                "config: training.checkpoint_steps and training.eval_steps must be at least 1: "
                "checkpoint_steps is " +
                std::to_string(t.checkpoint_steps) + ", eval_steps is " +
                (t.eval_steps ? std::to_string(*t.eval_steps) : "not set"));
    }
    std::string run_folder() const {
        return std::filesystem::path(training.output_dir) / *training.project_name /
               *training.exp_name;
    }
};
