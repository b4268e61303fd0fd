#include "accel/prepare/resolve_megatron.h"

#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "accel/config/environment.h"
#include "accel/config/resolve_plugins.h"
#include "accel/megatron/megatron_schedule.h"
#include "core/files/file.h"
#include "nn/models/pieces.h"

namespace axle::accel {
namespace {

constexpr const char* kPlugin = "MegatronLMPlugin";

std::optional<double> real_variable(const char* name) {
    const std::optional<std::string> text = text_variable(name);
    if (!text) return std::nullopt;
    double number = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error != std::errc() || stop != end)
        throw ValueError(str(name, ": must be a number: ", in_quotes(*text)));
    return number;
}

void check_positive(const char* option, int value) {
    if (value < 1) throw ValueError(str(kPlugin, ": ", option, " must be at least 1: ", value));
}

dist::MicroBatchAverage average_of(const std::string& name) {
    if (name == "rows") return dist::MicroBatchAverage::rows;
    if (name == "equal") return dist::MicroBatchAverage::equal;
    if (name == "tokens") return dist::MicroBatchAverage::tokens;
    throw ValueError(
        str(kPlugin, ": average must be one of rows, equal, tokens: ", in_quotes(name)));
}

// Returns the number of pieces of each stage if the last stage has `last` layers and the other
// stages divide the remaining layers evenly. The first stage also has the piece of the embeddings,
// and the last stage the piece of the head. Throws ValueError if the layers can't be divided.
std::vector<int> sizes_before_last(int layers, int ranks, int last) {
    const int others = ranks - 1;
    if (others == 0 || layers <= last || (layers - last) % others != 0)
        throw ValueError(str(kPlugin,
                             ": the layers that are not on the last stage must be divided evenly "
                             "among the other stages: ",
                             layers, " layers, pp_degree ", ranks,
                             ", decoder_last_pipeline_num_layers ", last));
    std::vector<int> sizes(static_cast<std::size_t>(others), (layers - last) / others);
    sizes.push_back(last + 1);
    ++sizes.front();
    return sizes;
}

void read_text(std::string& field, const char* variable, const char* otherwise) {
    if (field.empty()) field = text_variable(variable).value_or(otherwise);
}

void refuse(bool given, const char* option, const char* what, const char* fix = "leave it out") {
    if (given) throw_not_implemented(str("megatron_lm_plugin.", option), what, fix);
}

// Reads unset options of newer versions of Accelerate (MegatronLMPlugin) from the environment.
// Sets `average` to the value that calculate_per_token_loss implies; if neither is set, to "rows".
// Throws ValueError if both are set and contradict each other.
void resolve_newer_options(MegatronLMPlugin& plugin) {
    const auto read = [](auto& field, auto value) {
        if (!field && value) field = *value;
    };
    read(plugin.calculate_per_token_loss, flag_variable("MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS"));
    read(plugin.eod_mask_loss, flag_variable("MEGATRON_LM_EOD_MASK_LOSS"));
    read(plugin.attention_dropout, real_variable("MEGATRON_LM_ATTENTION_DROPOUT"));
    read(plugin.hidden_dropout, real_variable("MEGATRON_LM_HIDDEN_DROPOUT"));
    read(plugin.use_rotary_position_embeddings,
         flag_variable("MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS"));
    read(plugin.attention_backend, flag_variable("MEGATRON_LM_ATTENTION_BACKEND"));
    read(plugin.attention_softmax_in_fp32, flag_variable("MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32"));
    read(plugin.use_custom_fsdp, flag_variable("MEGATRON_LM_USE_CUSTOM_FSDP"));
    read(plugin.optimizer_cpu_offload, flag_variable("MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD"));
    read(plugin.overlap_cpu_optimizer_d2h_h2d,
         flag_variable("MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D"));
    read(plugin.use_precision_aware_optimizer,
         flag_variable("MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER"));
    read(plugin.no_load_optim, flag_variable("MEGATRON_LM_NO_LOAD_OPTIM"));
    read(plugin.no_save_optim, flag_variable("MEGATRON_LM_NO_SAVE_OPTIM"));
    if (const auto& per_token = plugin.calculate_per_token_loss) {
        const char* const implied = *per_token ? "tokens" : "equal";
        if (!plugin.average.empty() && plugin.average != implied)
            throw ValueError(str(kPlugin, ": average contradicts calculate_per_token_loss: ",
                                 in_quotes(plugin.average), ", expected ", in_quotes(implied),
                                 "; leave average out"));
        plugin.average = implied;
    }
    if (plugin.average.empty()) plugin.average = "rows";
}

// Throws NotImplementedError for options, and combinations of options, that Axle does not implement
// for MegatronLMPlugin.
void refuse_newer_options(const MegatronLMPlugin& plugin) {
    refuse(plugin.megatron_dataset_flag, "megatron_dataset_flag",
           "reading of datasets in Megatron-LM's format",
           "pass a data::DataLoader of the program's dataset to prepare()");
    refuse(!plugin.consumed_samples.empty(), "consumed_samples",
           "skipping of samples in Megatron-LM's datasets",
           "resume with load_state(), or use skip_first_batches()");
    refuse(plugin.use_custom_fsdp.value_or(false), "use_custom_fsdp",
           "sharding of the parameters of a pipeline",
           "set use_distributed_optimizer, or use fsdp_plugin with a parallelism_config instead of "
           "megatron_lm_plugin");
    refuse(plugin.optimizer_cpu_offload.value_or(false), "optimizer_cpu_offload",
           "offload of the optimizer of a pipeline",
           "use fsdp_plugin with cpu_offload, or deepspeed_plugin with offload_optimizer_device");
    refuse(plugin.overlap_cpu_optimizer_d2h_h2d.value_or(false), "overlap_cpu_optimizer_d2h_h2d",
           "offload of the optimizer of a pipeline",
           "use fsdp_plugin with cpu_offload, or deepspeed_plugin with offload_optimizer_device");
    refuse(plugin.use_precision_aware_optimizer.value_or(false), "use_precision_aware_optimizer",
           "keeping the states of an optimizer in 16 bits",
           "use 16-bit parameters with stochastic_rounding");
    refuse(plugin.no_load_optim.value_or(false), "no_load_optim",
           "loading of a state without its optimizer",
           "load the weights of save_model() instead of a state");
    refuse(plugin.no_save_optim.value_or(false), "no_save_optim",
           "saving of a state without its optimizer", "use save_model() instead of save_state()");
    refuse(!plugin.attention_backend.value_or(true), "attention_backend",
           "choosing the kernel of attention");
    refuse(!plugin.attention_softmax_in_fp32.value_or(true), "attention_softmax_in_fp32",
           "a softmax in 16 bits");
    refuse(*plugin.expert_tensor_parallel_size > 1, "expert_tensor_parallel_size",
           "division of each expert", "use expert_model_parallel_size");
    refuse(*plugin.expert_model_parallel_size > 1 && *plugin.tp_degree > 1,
           "expert_model_parallel_size", "division of experts with tp_degree above 1",
           "use tp_degree 1");
}

}  // namespace

void resolve_megatron(AcceleratorOptions& options) {
    const auto& config = options.parallelism_config;
    const int pp_size = config ? config->pp_size : 1, tp_size = config ? config->tp_size : 1;
    if (!options.megatron_lm_plugin) {
        if (flag_variable("ACCELERATE_USE_MEGATRON_LM").value_or(false))
            options.megatron_lm_plugin = MegatronLMPlugin();
        else if (pp_size > 1)
            options.megatron_lm_plugin = MegatronLMPlugin{.tp_degree = tp_size,
                                                          .pp_degree = pp_size,
                                                          .num_micro_batches = pp_size,
                                                          .gradient_clipping = 0};
        else
            return;
    }
    MegatronLMPlugin& plugin = *options.megatron_lm_plugin;
    const auto read = [](auto& field, auto from_environment, auto otherwise) {
        if (!field) field = from_environment;
        if (!field) field = otherwise;
    };
    read(plugin.tp_degree, number_variable("MEGATRON_LM_TP_DEGREE"), tp_size);
    read(plugin.pp_degree, number_variable("MEGATRON_LM_PP_DEGREE"), pp_size);
    read(plugin.num_micro_batches, number_variable("MEGATRON_LM_NUM_MICRO_BATCHES"), 1);
    read(plugin.gradient_clipping, real_variable("MEGATRON_LM_GRADIENT_CLIPPING"), 1.0);
    read(plugin.sequence_parallelism, flag_variable("MEGATRON_LM_SEQUENCE_PARALLELISM"), false);
    read(plugin.recompute_activations, flag_variable("MEGATRON_LM_RECOMPUTE_ACTIVATIONS"), false);
    read(plugin.use_distributed_optimizer, flag_variable("MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER"),
         false);
    read_text(plugin.recompute_granularity, "MEGATRON_LM_RECOMPUTE_GRANULARITY", "full");
    read_text(plugin.recompute_method, "MEGATRON_LM_RECOMPUTE_METHOD", "uniform");
    read(plugin.recompute_num_layers, number_variable("MEGATRON_LM_RECOMPUTE_NUM_LAYERS"), 1);
    if (!plugin.decoder_last_pipeline_num_layers)
        plugin.decoder_last_pipeline_num_layers =
            number_variable("MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS");
    read(plugin.context_parallel_size, number_variable("MEGATRON_LM_CONTEXT_PARALLEL_SIZE"), 1);
    read(plugin.expert_model_parallel_size,
         number_variable("MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE"), config ? config->ep_size : 1);
    read(plugin.expert_tensor_parallel_size,
         number_variable("MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE"), 1);
    check_positive("tp_degree", *plugin.tp_degree);
    check_positive("pp_degree", *plugin.pp_degree);
    check_positive("num_micro_batches", *plugin.num_micro_batches);
    check_positive("context_parallel_size", *plugin.context_parallel_size);
    check_positive("expert_model_parallel_size", *plugin.expert_model_parallel_size);
    check_positive("eval_iters", plugin.eval_iters);
    check_positive("eval_interval", plugin.eval_interval);
    if (!(*plugin.gradient_clipping >= 0) || std::isinf(*plugin.gradient_clipping))
        throw ValueError(str(kPlugin, ": gradient_clipping must be finite and not negative: ",
                             *plugin.gradient_clipping));
    if (plugin.num_layers_per_virtual_pipeline_stage)
        check_positive("num_layers_per_virtual_pipeline_stage",
                       *plugin.num_layers_per_virtual_pipeline_stage);
    check_positive("recompute_num_layers", *plugin.recompute_num_layers);
    if (plugin.recompute_method != "uniform" && plugin.recompute_method != "block")
        throw ValueError(str(kPlugin, ": recompute_method must be uniform or block: ",
                             in_quotes(plugin.recompute_method)));
    if (plugin.recompute_granularity != "full" && plugin.recompute_granularity != "selective")
        throw ValueError(str(kPlugin, ": recompute_granularity must be full or selective: ",
                             in_quotes(plugin.recompute_granularity)));
    if (plugin.decoder_last_pipeline_num_layers) {
        check_positive("decoder_last_pipeline_num_layers",
                       *plugin.decoder_last_pipeline_num_layers);
        if (!plugin.stage_sizes.empty() || plugin.num_layers_per_virtual_pipeline_stage)
            throw ValueError(
                str(kPlugin,
                    ": decoder_last_pipeline_num_layers can't be combined with "
                    "stage_sizes or num_layers_per_virtual_pipeline_stage; leave one of them out"));
    }
    if (plugin.schedule.empty())
        plugin.schedule = plugin.num_layers_per_virtual_pipeline_stage ? "interleaved" : "1f1b";
    static_cast<void>(dist::schedule_kind_of(plugin.schedule));
    resolve_newer_options(plugin);
    static_cast<void>(average_of(plugin.average));
    check_schedule_options(plugin);
    if (plugin.custom_prepare_model_function && !plugin.custom_model_provider_function)
        throw ValueError(str(kPlugin,
                             ": custom_prepare_model_function needs "
                             "custom_model_provider_function"));
    if (config && (*plugin.pp_degree != pp_size || *plugin.tp_degree != tp_size ||
                   *plugin.expert_model_parallel_size != config->ep_size))
        throw UsageError(
            str("Accelerator: megatron_lm_plugin and parallelism_config contradict "
                "each other: pp_degree is ",
                *plugin.pp_degree, ", pp_size is ", pp_size, ", tp_degree is ", *plugin.tp_degree,
                ", tp_size is ", tp_size, ", expert_model_parallel_size is ",
                *plugin.expert_model_parallel_size, ", ep_size is ", config->ep_size));
    if (options.fsdp_plugin || options.deepspeed_plugin)
        throw UsageError(
            str("Accelerator: ", options.fsdp_plugin ? "fsdp_plugin" : "deepspeed_plugin",
                " cannot be combined with megatron_lm_plugin or pp_size; leave one of them out"));
}

void check_megatron(const AcceleratorOptions& options, int num_processes) {
    if (!options.megatron_lm_plugin) return;
    const MegatronLMPlugin& plugin = *options.megatron_lm_plugin;
    refuse(*plugin.context_parallel_size > 1, "context_parallel_size", "the option",
           "use cp_size of ParallelismConfig");
    refuse_newer_options(plugin);
    if (const auto& config = options.parallelism_config)
        for (const auto& [name, size] : config->mesh_dimensions())
            if (name != "pp" && name != "dp_replicate" && name != "cp" && name != "tp")
                throw_not_implemented(str("parallelism_config.", name, "_size"),
                                      "a pipeline of models that are divided in another way",
                                      "leave out megatron_lm_plugin and pp_size");
    const std::int64_t ranks = std::int64_t{*plugin.pp_degree} * *plugin.tp_degree;
    if (num_processes % ranks != 0)
        throw ValueError(str(kPlugin,
                             ": the number of processes must be a multiple of pp_degree * "
                             "tp_degree: ",
                             num_processes, " processes, pp_degree ", *plugin.pp_degree,
                             ", tp_degree ", *plugin.tp_degree));
    const std::int64_t replicas = num_processes / ranks;
    if (replicas % *plugin.expert_model_parallel_size != 0)
        throw ValueError(str(kPlugin,
                             ": the number of replicas must be a multiple of "
                             "expert_model_parallel_size: ",
                             replicas, " replicas, expert_model_parallel_size ",
                             *plugin.expert_model_parallel_size));
}

std::vector<nn::Piece> pieces_for(const MegatronLMPlugin& plugin, nn::Module& model) {
    return plugin.pieces ? plugin.pieces(model) : nn::pieces_of(model);
}

dist::PipelineOptions pipeline_options_of(const MegatronLMPlugin& plugin, int pieces) {
    dist::PipelineOptions options{.schedule = dist::schedule_kind_of(plugin.schedule),
                                  .micro_batches = *plugin.num_micro_batches,
                                  .stage_sizes = plugin.stage_sizes,
                                  .average = average_of(plugin.average)};
    options.shard_optimizer = *plugin.use_distributed_optimizer;
    // No option is set for "selective", because attention always recomputes its weights.
    if (*plugin.recompute_activations && plugin.recompute_granularity == "full") {
        options.recompute = plugin.recompute_method == "block" ? dist::Recompute::first_pieces
                                                               : dist::Recompute::pieces;
        options.recompute_pieces = *plugin.recompute_num_layers;
    }
    // The first and the last piece are the embeddings and the head.
    const int layers = pieces - 2, ranks = *plugin.pp_degree;
    if (plugin.decoder_last_pipeline_num_layers) {
        options.stage_sizes =
            sizes_before_last(layers, ranks, *plugin.decoder_last_pipeline_num_layers);
        return options;
    }
    if (!plugin.num_layers_per_virtual_pipeline_stage) return options;
    const int per_stage = *plugin.num_layers_per_virtual_pipeline_stage;
    if (layers < 1 || layers % (per_stage * ranks) != 0)
        throw ValueError(str(kPlugin,
                             ": the number of layers must be a multiple of pp_degree * "
                             "num_layers_per_virtual_pipeline_stage: ",
                             layers, " layers, pp_degree ", ranks, ", layers per stage ",
                             per_stage));
    options.chunks = layers / (per_stage * ranks);
    options.stage_sizes.assign(static_cast<std::size_t>(layers / per_stage), per_stage);
    ++options.stage_sizes.front();
    ++options.stage_sizes.back();
    return options;
}

}  // namespace axle::accel
