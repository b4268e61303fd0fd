// The program train_template: an example of a trainer with configuration, logging, progress bars,
// evaluation, checkpoints and resuming.
//
//     train_template --config train_template.yaml data.data_dir=mnist
//     axle launch --num_processes 4 train_template --config train_template.yaml ...
//
// train_template_config.h has the options. To train another model, replace the functions get_model,
// get_dataloader, get_optimizer, get_loss and get_scheduler. They are followed by helpers and the
// training loop.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/config/structured_config.h"
#include "accel/config/yaml.h"
#include "accel/loop/elastic.h"
#include "accel/metrics.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "accel/utils/logger.h"
#include "accel/utils/progress.h"
#include "accel/utils/random.h"
#include "core/autograd/autograd.h"
#include "core/cuda.h"
#include "core/files/file.h"
#include "core/memory/memory.h"
#include "core/system/numerics.h"
#include "core/text/text.h"
#include "data/files/mnist.h"
#include "data/loading/loader.h"
#include "data/transforms.h"
#include "nn/models/lenet.h"
#include "optim/adam.h"
#include "optim/schedules/get_scheduler.h"
#include "tools/train_template_config.h"

namespace fs = std::filesystem;
using namespace axle;

// --- functions to replace with your own

nn::LeNet get_model(const ModelConfig& config) {
    nn::LeNet model(config.num_classes);
    model.conv1.requires_grad_(!config.freeze_features);
    model.conv2.requires_grad_(!config.freeze_features);
    return model;
}

data::DataLoader get_dataloader(const DataConfig& config, bool train) {
    return data::DataLoader(
        data::TransformedDataset(
            std::make_shared<data::TensorDataset>(data::mnist(config.data_dir, train)),
            data::Compose({data::ToFloat(), data::Normalize({0.1307}, {0.3081})})),
        {.batch_size = config.batch_size,
         .shuffle = train,
         .num_workers = static_cast<int>(config.num_workers),
         .pin_memory = config.pin_memory,
         .drop_last = train && config.drop_last});
}

optim::AdamW get_optimizer(const OptimizerConfig& config, const nn::Module& model) {
    return optim::AdamW(model.parameters(), {.lr = config.learning_rate,
                                             .betas = {config.adam_beta1, config.adam_beta2},
                                             .eps = config.adam_epsilon,
                                             .weight_decay = config.adam_weight_decay});
}

// Returns the loss of each sample, so that an evaluation can ignore repeated samples in a batch.
Tensor get_loss(const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels, {.reduction = Reduction::none});
}

// Returns a schedule whose warmup and total length are numbers of updates, for any number of
// processes.
std::unique_ptr<optim::Scheduler> get_scheduler(const SchedulerConfig& config,
                                                optim::Optimizer& optimizer, std::int64_t updates) {
    return optim::get_scheduler(config.name, optimizer, config.num_warmup_steps.value_or(0),
                                updates);
}

// --- evaluation

// Returns the metrics of the evaluation set over all processes. Each sample is counted once.
template <class Model>
Tree evaluate(Accelerator& accelerator, Model& model, data::DataLoader& loader) {
    const NoGrad no_grad;
    model.eval();
    accel::Mean loss(accelerator);
    accel::Accuracy accuracy(accelerator);
    for (auto& batch : loader) {
        const Tensor logits = model(batch["image"]);
        loss.update(get_loss(logits, batch["label"]));
        accuracy.update(logits, batch["label"]);
    }
    model.train();
    return Tree{{"eval_loss", loss.compute()}, {"eval_accuracy", accuracy.compute()}};
}

// --- helpers of the loop

// The numbers of batches and of updates, which checkpoints save. The loader saves its own epoch,
// order and position.
struct TrainProgress : accel::Checkpointable {
    std::int64_t global_step = 0, updates = 0;

    Tree state_dict() const override {
        return Tree{{"global_step", global_step}, {"updates", updates}};
    }
    void load_state_dict(const Tree& state) override {
        global_step = state["global_step"].integer();
        updates = state["updates"].integer();
    }
};

std::string formatted(double value, int precision) {
    return format_number(value, std::chars_format::fixed, precision);
}

// The metrics that are logged for an update.
struct StepMetrics {
    Tensor loss_sum;  // sum over the batches of the update, on the device
    std::int64_t batches = 0;
    double loss = 0, learning_rate = 0, grad_norm = 0, memory_gb = 0;

    void add(const Tensor& batch_loss) {
        const Tensor value = batch_loss.detach();
        loss_sum = batches++ == 0 ? value : loss_sum + value;
    }
    // Sets memory_gb, and the loss to the mean over the batches of the update and the processes.
    void end_update(Accelerator& accelerator) {
        const Device device = accelerator.device();
        const std::int64_t reserved = device.is_cuda() ? cuda::memory_stats(device.index).reserved
                                                       : host_memory::stats().reserved;
        loss = accelerator.gather(loss_sum / static_cast<double>(batches)).mean().item();
        memory_gb = static_cast<double>(reserved) / (1 << 30);
        batches = 0;
    }
    Tree values() const {
        return Tree{{"loss", loss},
                    {"learning_rate", learning_rate},
                    {"grad_norm", grad_norm},
                    {"memory_gb", memory_gb}};
    }
    std::string text() const {
        return "loss=" + formatted(loss, 4) +
               ", lr=" + format_number(learning_rate, std::chars_format::scientific, 2) +
               ", mem=" + formatted(memory_gb, 1) + "GB, grad=" + formatted(grad_norm, 3);
    }
};

std::string with_commas(std::int64_t number) {
    std::string text = std::to_string(number);
    for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
        text.insert(static_cast<std::size_t>(at), ",");
    return text;
}

void log_model_info(const Accelerator& accelerator, const nn::Module& model) {
    std::int64_t trainable = 0;
    for (const Tensor& p : model.parameters()) trainable += p.requires_grad() ? p.numel() : 0;
    const std::int64_t total = model.num_parameters();
    accelerator.print("parameters: ", with_commas(total), " total, ", with_commas(trainable),
                      " trainable, ", with_commas(total - trainable), " frozen");
}

// Sets the log level: the main process of each machine logs warnings, and other processes log only
// errors.
void set_verbosity(const Accelerator& accelerator) {
    set_log_level(accelerator.is_local_main_process() ? LogLevel::warning : LogLevel::error);
}

// Starts the trackers. A resumed run logs some steps again, so the trackers remove the entries of
// first_step and later steps.
void start_trackers(Accelerator& accelerator, const Config& config, const Tree& resolved,
                    std::int64_t first_step) {
    Tree options = Tree::map();
    for (const char* name : {"tensorboard", "jsonl", "csv"})
        options.set(name, Tree{{"purge_step", first_step}});
    accelerator.init_trackers(config.training.project_name, resolved, options);
}

void resume(Accelerator& accelerator, const Config& config) {
    if (!config.training.resume_from_checkpoint) {
        // The numbers of checkpoints continue after the numbers of an earlier run in the folder.
        const auto earlier = accel::list_checkpoints(config.run_folder()).entries;
        if (!earlier.empty()) accelerator.set_save_iteration(earlier.back().iteration + 1);
        return;
    }
    std::string folder = *config.training.resume_from_checkpoint;
    if (folder == "latest") {
        const auto latest = accel::latest_checkpoint(config.run_folder());
        if (!latest)
            throw FileError(config.run_folder() +
                            ": contains no checkpoint to resume from; remove "
                            "training.resume_from_checkpoint=latest to start a new run");
        folder = *latest;
    }
    accelerator.load_state(folder);
    accelerator.print("resumed from ", folder);
}

// --- the loop

void train(const Config& config, const Tree& resolved) {
    const TrainingConfig& training = config.training;
    const std::string run_folder = config.run_folder();
    const std::vector<std::string> trackers =
        training.report_to.value_or(std::vector<std::string>());

    if (training.allow_tf32) set_float32_matmul_precision(MatmulPrecision::high);
    Accelerator accelerator({
        .mixed_precision = training.mixed_precision,
        .cpu = training.cpu,
        .dataloader_config = accel::DataLoaderConfiguration{.non_blocking = config.data.pin_memory},
        .log_with = {trackers.begin(), trackers.end()},
        .project_dir = run_folder,
        .scheduler_steps = accel::SchedulerSteps::per_update,
    });
    // If axle launch has restarted the job on fewer machines, an update has more micro-batches, so
    // that it has the same number of samples as before.
    accelerator.set_gradient_accumulation_steps(
        accel::elastic_accumulation_steps(training.gradient_accumulation_steps,
                                          *config.data.batch_size, accelerator.num_processes()));
    set_verbosity(accelerator);
    accel::set_seed(training.seed);
    accelerator.print(accel::to_yaml(resolved));
    accelerator.on_main_process([&] {
        create_directories(run_folder);
        write_file_atomically(fs::path(run_folder) / "config.yaml", accel::to_yaml(resolved));
    });

    auto model = get_model(config.model);
    auto optimizer = get_optimizer(config.optimizer, model);
    auto train_loader = get_dataloader(config.data, true);
    auto eval_loader = get_dataloader(config.data, false);
    accelerator.prepare(model, optimizer, train_loader, eval_loader);

    // len() returns the number of batches of this process only after prepare().
    const std::int64_t accumulated = accelerator.gradient_accumulation_steps();
    const std::int64_t updates_per_epoch = (train_loader.len() + accumulated - 1) / accumulated;
    const std::int64_t updates = updates_per_epoch * training.num_epochs;
    const auto schedule = get_scheduler(config.scheduler, optimizer, updates);
    auto& scheduler = accelerator.prepare(*schedule);
    log_model_info(accelerator, model);

    TrainProgress progress;
    accelerator.register_for_checkpointing(progress);
    resume(accelerator, config);
    start_trackers(accelerator, config, resolved, progress.global_step + 1);

    accel::ProgressBar total_bar(updates,
                                 {.title = "total", .unit = "update", .start = progress.updates});
    const auto evaluate_now = [&] {
        const Tree metrics = evaluate(accelerator, model, eval_loader);
        accelerator.log(metrics, progress.global_step);
        total_bar.print(str("step ", progress.global_step, ": eval_loss ",
                            formatted(metrics["eval_loss"].number(), 4), ", eval_accuracy ",
                            formatted(metrics["eval_accuracy"].number(), 4)));
    };
    StepMetrics metrics;
    while (train_loader.epoch() < training.num_epochs) {
        const std::int64_t epoch = train_loader.epoch() + 1;
        accel::ProgressBar epoch_bar(train_loader.len(),
                                     {.title = str("epoch ", epoch, "/", *training.num_epochs),
                                      .unit = "batch",
                                      .start = train_loader.position(),
                                      .leave = false,
                                      .line = 1});
        for (auto& batch : train_loader) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = get_loss(model(batch["image"]), batch["label"]).mean();
            accelerator.backward(loss);
            metrics.add(loss);
            if (accelerator.sync_gradients()) {
                const auto parameters = model.parameters();
                if (training.clip_value)
                    accelerator.clip_grad_value_(parameters, *training.clip_value);
                if (training.max_grad_norm)
                    metrics.grad_norm =
                        accelerator.clip_grad_norm_(parameters, *training.max_grad_norm).item();
                metrics.learning_rate = scheduler.get_last_lr()[0];
            }
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();

            ++progress.global_step;
            if (accelerator.sync_gradients()) {
                ++progress.updates;
                metrics.end_update(accelerator);
                accelerator.log(metrics.values(), progress.global_step);
                total_bar.update(progress.updates, metrics.text());
            }
            epoch_bar.update(train_loader.position(), metrics.text());
            if (training.eval_steps && progress.global_step % *training.eval_steps == 0)
                evaluate_now();
            if (training.save_strategy == "steps" &&
                progress.global_step % training.checkpoint_steps == 0)
                accelerator.save_state(str(run_folder, "/step_", progress.global_step));
        }
        epoch_bar.close();
        if (!training.eval_steps) evaluate_now();
        if (training.save_strategy == "epoch")
            accelerator.save_state(str(run_folder, "/epoch_", epoch));
    }

    total_bar.close();
    accelerator.wait_for_everyone();
    accelerator.save_model(model, run_folder);
    accelerator.end_training();
}

int main(int argc, char** argv) {
    try {
        std::vector<std::string> arguments(argv + 1, argv + argc);
        Config config;
        if (!arguments.empty() && arguments[0] == "--help") {
            std::cout << "Usage: train_template [--config FILE] [group.key=value ...]\n\n"
                      << "Defaults (??? must be given):\n"
                      << accel::to_yaml(accel::config_tree(config));
            return 0;
        }
        std::string file;
        if (arguments.size() > 1 && arguments[0] == "--config") {
            file = arguments[1];
            arguments.erase(arguments.begin(), arguments.begin() + 2);
        }
        const Tree resolved = accel::load_config(config, file, arguments);
        config.check();
        train(config, resolved);
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "train_template: " << error.what() << '\n';
        return 1;
    }
}
