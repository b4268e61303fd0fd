#include "tools/axle/estimate/plan.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <unordered_set>

#include "core/files/file.h"
#include "core/text/size_text.h"
#include "core/tree/tree.h"
#include "dist/pipeline/simulation.h"
#include "dist/pipeline/stage_plan.h"
#include "kernels/error.h"
#include "nn/init.h"
#include "nn/models/pieces.h"
#include "tools/axle/commands.h"
#include "tools/axle/estimate/table.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

constexpr std::int64_t kMaxConfig = std::int64_t{2} << 20;
constexpr std::int64_t kFloat = 4;    // bytes
constexpr std::int64_t kTrained = 4;  // floats per parameter: value, gradient, two moments
// The number of values that a block stores for backward, per token and channel, without attention
// scores. In half precision they need about 34 bytes (Korthikanti et al., arXiv:2205.05198).
constexpr std::int64_t kBlockFloats = 17;

// Returns the costs of a model, which is constructed without memory. Blocks are the pieces between
// the first and the last.
template <class Model, class Config>
ModelCosts costs_of(const Config& config, std::int64_t width, std::int64_t vocabulary,
                    std::int64_t time) {
    const nn::init::EmptyWeights without_memory;
    Model model(config);
    ModelCosts costs{.pieces = {}, .parameters = model.num_parameters(), .width = width};
    const std::vector<nn::Piece> pieces = nn::pieces(model);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        ModelCosts::Piece piece{
            .parameters = 0, .flops = 2 * pieces[i].cost, .activation_bytes = 0};
        std::unordered_set<const Impl*> counted;
        const auto count = [&](const Tensor& parameter) {
            if (counted.insert(parameter.impl().get()).second)
                piece.parameters += parameter.numel();
        };
        for (const nn::Module* module : pieces[i].modules)
            for (const Tensor& parameter : module->parameters()) count(parameter);
        for (const Tensor& parameter : pieces[i].tensors) count(parameter);
        if (i + 1 == pieces.size()) {
            piece.activation_bytes = 2 * vocabulary * kFloat;
        } else if (i > 0) {
            piece.flops += 4 * static_cast<double>(width) * static_cast<double>(time);
            piece.activation_bytes = kBlockFloats * width * kFloat;
        }
        costs.pieces.push_back(piece);
    }
    return costs;
}

struct Stage {
    std::int64_t parameters = 0, activation_bytes = 0;
    double seconds = 0;  // duration of a forward pass of one row
};

std::vector<Stage> stages_of(const ModelCosts& model, int count, const PlanOptions& options) {
    std::vector<double> flops;
    for (const ModelCosts::Piece& piece : model.pieces) flops.push_back(piece.flops);
    std::vector<Stage> stages;
    std::size_t next = 0;
    for (const int size : dist::balanced_sizes(flops, count)) {
        Stage stage;
        for (int i = 0; i < size; ++i, ++next) {
            stage.parameters += model.pieces[next].parameters;
            stage.activation_bytes += model.pieces[next].activation_bytes * options.time;
            stage.seconds +=
                model.pieces[next].flops * static_cast<double>(options.time) / options.flops;
        }
        stages.push_back(stage);
    }
    return stages;
}

// Returns the bytes that a process sends to reduce `bytes` bytes over `count` processes.
std::int64_t reduced(std::int64_t bytes, int count) { return 2 * bytes * (count - 1) / count; }

Plan pipeline_plan(const ModelCosts& model, const PlanOptions& options, int stages,
                   dist::ScheduleKind kind) {
    Plan plan{
        .stages = stages, .replicas = options.num_processes / stages, .method = name_of(kind)};
    plan.micro_batches = static_cast<int>(options.batch / plan.replicas);
    const std::vector<Stage> parts = stages_of(model, stages, options);
    const std::int64_t activation = options.time * model.width * kFloat;
    dist::ActionCosts costs{.link_delay = static_cast<double>(activation) / options.link};
    for (const Stage& stage : parts) costs.stage_factors.push_back(stage.seconds);
    const dist::ScheduleReport report =
        simulate(dist::make_schedule(kind, stages, plan.micro_batches), costs);
    std::int64_t gradients = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        plan.memory = std::max(plan.memory, kTrained * kFloat * parts[i].parameters +
                                                report.peak_stored[i] * parts[i].activation_bytes);
        gradients = std::max(gradients, parts[i].parameters * kFloat);
    }
    const std::int64_t reduction = reduced(gradients, plan.replicas);
    const int messages = stages == 1 ? 0 : 2 - (stages == 2);
    plan.bytes = reduction + messages * plan.micro_batches * activation;
    plan.seconds = report.time + static_cast<double>(reduction) / options.link;
    plan.idle_share = report.idle_share;
    return plan;
}

Plan sharded_plan(const ModelCosts& model, const PlanOptions& options) {
    Plan plan{.stages = 1, .replicas = options.num_processes, .method = "FULL_SHARD"};
    plan.micro_batches = static_cast<int>(options.batch / plan.replicas);
    const Stage whole = stages_of(model, 1, options).front();
    std::int64_t largest = 0;
    for (const ModelCosts::Piece& piece : model.pieces)
        largest = std::max(largest, piece.parameters);
    plan.memory = kTrained * kFloat * model.parameters / plan.replicas + 4 * kFloat * largest +
                  whole.activation_bytes;
    // Each micro-batch gathers the parameters twice and reduces the gradients once.
    plan.bytes =
        3 * plan.micro_batches * model.parameters * kFloat * (plan.replicas - 1) / plan.replicas;
    plan.seconds =
        3 * whole.seconds * plan.micro_batches + static_cast<double>(plan.bytes) / options.link;
    return plan;
}

ModelCosts costs_from(const std::string& text, std::int64_t time) {
    const Tree fields = from_json(text);
    const Tree* const type = fields.is_map() ? fields.find("model_type") : nullptr;
    if (type == nullptr || !type->is_string())
        throw ValueError(
            str("plan: the file must be a map with the text model_type (gpt2, llama or bert): ",
                !fields.is_map()  ? std::string("it is not a map")
                : type == nullptr ? std::string("model_type is missing")
                                  : str("model_type is ", *type)));
    const std::string& name = type->string();
    if (name == "gpt2") {
        const auto config = nn::GptConfig::from_json(text);
        return costs_of<nn::Gpt>(config, config.n_embd, config.vocab_size, time);
    }
    if (name == "llama") {
        const auto config = nn::LlamaConfig::from_json(text);
        return costs_of<nn::Llama>(config, config.hidden_size, config.vocab_size, time);
    }
    if (name == "bert") {
        const auto config = nn::BertConfig::from_json(text);
        return costs_of<nn::BertForMaskedLM>(config, config.hidden_size, config.vocab_size, time);
    }
    throw ValueError("plan: the model_type must be gpt2, llama or bert: " + in_quotes(name));
}

std::string rounded(double number, int digits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.*f", digits, number);
    return text;
}

}  // namespace

ModelCosts model_costs(const std::string& config, std::int64_t time) {
    const std::string text = read_file(config, kMaxConfig);
    try {
        return costs_from(text, time);
    } catch (const Error& error) {
        throw FileError(printable(config) + ": " + error.what());
    }
}

std::vector<Plan> plans(const ModelCosts& model, const PlanOptions& options) {
    std::vector<Plan> fitting;
    const auto add = [&](const Plan& plan) {
        if (plan.memory <= options.memory) fitting.push_back(plan);
    };
    for (int stages = 1; stages <= std::min<int>(options.num_processes, std::ssize(model.pieces));
         ++stages) {
        if (options.num_processes % stages != 0) continue;
        const int replicas = options.num_processes / stages;
        if (options.batch % replicas != 0) continue;
        for (const auto kind :
             {dist::ScheduleKind::one_forward_one_backward, dist::ScheduleKind::zero_bubble})
            if (stages > 1) add(pipeline_plan(model, options, stages, kind));
        if (stages > 1) continue;
        Plan whole = pipeline_plan(model, options, 1, dist::ScheduleKind::one_forward_one_backward);
        whole.method = "NO_SHARD";
        add(whole);
        if (replicas > 1) add(sharded_plan(model, options));
    }
    std::ranges::stable_sort(fitting, {}, &Plan::seconds);
    return fitting;
}

int run_plan(std::vector<std::string> arguments) {
    tools::Options options(
        "Shows the meshes with which a model can be trained: how many pipeline stages and "
        "replicas, and the memory, traffic and time of a step that they are predicted to need. "
        "Times come from the given rates and leave out everything else.",
        "axle plan");
    std::string config, memory = "80GB", link = "25GB";
    PlanOptions wanted{.num_processes = 8, .batch = 64, .time = 1024};
    double teraflops = 100;
    options.add("--config", config, "A config.json of the model type gpt2, llama or bert")
        .required();
    options.show_defaults();
    options.add("--num_processes", wanted.num_processes, "The number of processes")
        .range(1, 1 << 16);
    options.add("--memory", memory, "The memory of each process");
    options.add("--batch_size", wanted.batch, "The rows of a step, over all processes")
        .range(std::int64_t{1}, std::int64_t{1} << 20);
    options.add("--seq_length", wanted.time, "The tokens of a row")
        .range(std::int64_t{1}, std::int64_t{1} << 24);
    options.add("--link", link, "The bytes that each process sends per second");
    options.add("--teraflops", teraflops, "The operations of each process per second, in 10^12")
        .range(1e-6, 1e9);
    if (!options.parse(std::move(arguments))) return 0;
    wanted.memory = convert_file_size_to_int(memory);
    wanted.link = static_cast<double>(convert_file_size_to_int(link));
    wanted.flops = teraflops * 1e12;
    if (!(wanted.link > 0)) throw UsageError("plan: --link must be positive: " + link);
    const std::vector<Plan> found = plans(model_costs(config, wanted.time), wanted);
    if (found.empty()) {
        std::cout << "No mesh of " << wanted.num_processes << " processes fits into " << memory
                  << " and divides " << wanted.batch << " rows.\n";
        return 1;
    }
    std::vector<TableRow> rows = {{"stages", "replicas", "method", "micro-batches", "memory",
                                   "sent per step", "seconds", "idle"}};
    for (const Plan& plan : found)
        rows.push_back({str(plan.stages), str(plan.replicas), plan.method, str(plan.micro_batches),
                        convert_bytes(plan.memory), convert_bytes(plan.bytes),
                        rounded(plan.seconds, 3), rounded(100 * plan.idle_share, 0) + "%"});
    std::cout << table(str("Training `", config, "` on ", wanted.num_processes, " processes"),
                       rows);
    return 0;
}

}  // namespace axle::launcher
