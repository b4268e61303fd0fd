// The options of the trainers, and the checkpoint from which they resume.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "accel/loop/elastic.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/file.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "nn/layers/linear.h"
#include "tools/trainer/fingerprint.h"
#include "tools/trainer/run.h"

namespace axle::trainer {

namespace fs = std::filesystem;

namespace {

// Returns the comma-separated parts of a text.
std::vector<std::string> parts_of(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
}

// Returns whether the data of this run are a file that begins with the data of a checkpoint and is
// longer.
bool data_have_grown(const Options& options, const std::string& checkpoint) {
    const Tree identity = accel::checkpoint_label(checkpoint).identity;
    const Tree* const saved = identity.find("data");
    return !options.divides_rows && saved != nullptr && fs::is_regular_file(options.data) &&
           has_grown(options.data, saved->string());
}

// Returns the seed of the run whose checkpoint is evaluated.
std::uint64_t seed_of_evaluated_run(const Options& options) {
    const std::string path = [&] {
        try {
            return checkpoint_to_resume(options);
        } catch (const FileError& error) {
            throw FileError(str("--eval-only evaluates a checkpoint of --out: ", error.what()));
        }
    }();
    if (!accel::is_checkpoint(path))
        throw FileError(str("--eval-only evaluates a checkpoint: ",
                            printable(path.empty() ? options.path_of("checkpoints") : path),
                            ": not a checkpoint"));
    const Tree identity = accel::checkpoint_label(path).identity;
    const Tree* const saved = identity.find("seed");
    std::uint64_t seed = options.seed;
    if (saved != nullptr && saved->is_string()) {
        const std::string& text = saved->string();
        std::from_chars(text.data(), text.data() + text.size(), seed);
    }
    return seed;
}

}  // namespace

void Options::add_to(CommandLine& line) {
    has_steps = line.peek("steps").has_value();
    if (has_steps) epochs = 0;
    line.add("out", out, "Folder for metrics, checkpoints and the model");
    line.add("resume", resume,
             "Resume from a checkpoint folder, from the newest in --out ('latest'; 'latest-good' "
             "skips damaged ones), or 'auto': from the newest if there is one");
    line.add("allow-changed", allow_changed,
             "Fields that may differ when resuming: seed, batch, lr, weight-decay, model, data, "
             "documents, augment");
    line.add("seed", seed, "Random seed of weights, batches, splits, dropout and samples");
    line.add("threads", threads, "CPU threads; 0 uses AXLE_NUM_THREADS or all CPUs", 0, 1024);
    line.add("steps", steps, "Optimizer updates", 1);
    line.add("epochs", epochs, "Passes over the training data, instead of --steps", 0, 1e6);
    line.add("batch-size", batch_size, "Samples in a micro-batch", 1);
    line.add("gradient-accumulation-steps", accumulation, "Micro-batches in an update", 1, 1 << 20);
    line.add("lr", lr, "Highest learning rate");
    line.add("weight-decay", weight_decay, "Weight decay of AdamW, for matrices");
    line.add("eval-every", eval_every,
             "Updates between evaluations; 0 only at the end, -1 after every epoch", -1);
    line.add("save-every", save_every, "Updates between checkpoints; 0 only at the end");
    line.add_flag(
        "eval-only", eval_only,
        "Evaluate a checkpoint in --out without training, on the validation data of its run");
    line.add("log-with", log_with,
             "Trackers in addition to metrics.jsonl: tensorboard, mlflow, csv, all");
    line.add("mixed-precision", mixed_precision, "no, fp16, bf16 or fp8");
    line.add("device", device, "cpu or cuda");
}

std::string Options::path_of(const char* name) const { return (fs::path(out) / name).string(); }

void Options::apply() {
    if (has_steps && epochs > 0)
        throw UsageError(str("--steps and --epochs exclude each other: --steps is ", steps,
                             ", --epochs is ", epochs));
    if (eval_only && resume.empty() && init_from.empty()) resume = "latest";
    split_seed = eval_only && !resume.empty() ? seed_of_evaluated_run(*this) : seed;
    const Device chosen = Device::parse(device);
    if (chosen.is_meta() || chosen.index != 0)
        throw DeviceError("--device: must be cpu or cuda, not '" + device +
                          "'; use CUDA_VISIBLE_DEVICES to choose a GPU");
    processes =
        std::make_shared<const PartialState>(accel::PartialStateOptions{.cpu = chosen.is_cpu()});
    accumulation =
        accel::elastic_accumulation_steps(accumulation, batch_size, processes->num_processes());
    if (!processes->is_local_main_process()) std::cout.setstate(std::ios::failbit);
    if (threads > 0) kernels::set_num_threads(static_cast<int>(threads));
    create_directories(out);
    manual_seed(seed);
}

std::int64_t Options::samples_per_update() const {
    const auto config = accel::ParallelismConfig::from_environment();
    const int shared = config ? config->non_data_parallel_size() / config->sp_size : 1;
    return batch_size * accumulation * (processes ? processes->num_processes() / shared : 1);
}

std::int64_t Options::updates(double samples_per_pass) const {
    if (epochs == 0) return steps;
    const double passes = epochs * samples_per_pass / static_cast<double>(samples_per_update());
    return std::max<std::int64_t>(1, std::llround(passes));
}

accel::AcceleratorOptions Options::accelerator() const {
    std::vector<accel::LogWith> trackers;
    for (std::string& name : parts_of(log_with)) trackers.emplace_back(std::move(name));
    std::vector<std::pair<std::string, std::string>> fields = {
        {"seed", std::to_string(seed)},
        {"batch", std::to_string(samples_per_update())},
        {"lr", str(lr)},
        {"weight-decay", str(weight_decay)},
    };
    fields.insert(fields.end(), identity.begin(), identity.end());
    return {.mixed_precision = mixed_precision,
            .cpu = Device::parse(device).is_cpu(),
            .log_with = std::move(trackers),
            .project_config = {.project_dir = out,
                               .automatic_checkpoint_naming = true,
                               .total_limit = 2,
                               .identity = std::move(fields)},
            // The plugin takes precedence over the environment, which apply() has read.
            .gradient_accumulation_plugin =
                accel::GradientAccumulationPlugin{.num_steps = static_cast<int>(accumulation)},
            .scheduler_steps = accel::SchedulerSteps::per_update};
}

optim::AdamW adamw(std::span<const Tensor> parameters, optim::AdamWOptions options) {
    std::vector<Tensor> matrices, vectors;
    for (const Tensor& p : parameters)
        if (p.requires_grad()) (p.dim() >= 2 ? matrices : vectors).push_back(p);
    std::vector<optim::AdamW::Group> groups = {{matrices, options}};
    options.weight_decay = 0;
    optim::AdamW::Group undecayed(vectors, options);
    if (!vectors.empty()) groups.push_back(std::move(undecayed));
    return optim::AdamW(groups);
}

optim::AdamW adamw(const nn::Module& model, optim::AdamWOptions options) {
    return adamw(model.parameters(), options);
}

std::vector<Tensor> layer_weights(nn::Module& model) {
    std::vector<Tensor> weights;
    for (const auto& [name, module] : model.named_modules()) {
        const auto* const layer = dynamic_cast<nn::Linear*>(module);
        if (layer == nullptr || name.ends_with("lm_head")) continue;
        if (layer->weight.defined() && layer->weight.requires_grad())
            weights.push_back(layer->weight);
    }
    if (weights.empty())
        throw UsageError("--muon-lr: the model has no Linear layer whose weight is trained");
    return weights;
}

std::vector<Tensor> without(std::vector<Tensor> parameters, std::span<const Tensor> removed) {
    std::erase_if(parameters, [&](const Tensor& parameter) {
        return std::ranges::any_of(
            removed, [&](const Tensor& other) { return other.impl() == parameter.impl(); });
    });
    return parameters;
}

std::string checkpoint_to_resume(const Options& options) {
    const std::string& from = options.resume;
    const bool is_good = from == "latest-good";
    if (from != "auto" && from != "latest" && !is_good) return from;
    const std::string checkpoints = options.path_of("checkpoints");
    if (from == "auto") {
        const accel::CheckpointList list = accel::list_checkpoints(checkpoints);
        if (list.entries.empty() && list.damaged.empty()) return "";
    }
    const auto newest = is_good ? accel::latest_good_checkpoint(checkpoints)
                                : accel::latest_checkpoint(checkpoints);
    if (!newest)
        throw FileError(printable(checkpoints) + (is_good ? ": contains no undamaged checkpoint"
                                                          : ": contains no checkpoint"));
    return *newest;
}

std::string resume(const Options& options, Accelerator& accelerator) {
    const std::string path = checkpoint_to_resume(options);
    if (path.empty()) return "";
    std::vector<std::string> changed = parts_of(options.allow_changed);
    if (accel::is_checkpoint(path) && data_have_grown(options, path)) {
        changed.emplace_back("data");
        accelerator.print("the data have grown since ", path, " was saved");
    }
    return accelerator.load_state(
        path, {.check_identity = !options.eval_only, .changed_identity = std::move(changed)});
}

}  // namespace axle::trainer
