// MegatronLMPlugin: options of pipeline parallel training, with the names and defaults of
// Accelerate's plugin for Megatron-LM.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "nn/module.h"
#include "nn/pieces.h"

namespace axle::accel {

// The parts of a step that depend on the task. MegatronLMPlugin::custom_train_step_class creates
// an object of a derived class.
class AbstractTrainStep {
  public:
    virtual ~AbstractTrainStep() = default;
    // Returns the batch for the pieces of the model and for loss(), made from a batch of the
    // loader.
    virtual Tree get_batch(const Tree& batch) { return batch; }
    // Returns the loss of a micro-batch, a 0-d tensor, from the output of the last piece.
    virtual Tensor loss(const Tensor& output, const Tree& batch) = 0;
};

// The sizes in a model's configuration, with Megatron-LM's names.
struct MegatronNetwork {
    std::string model_type_name;   // "gpt", "llama" or "bert"
    bool pretraining_flag = true;  // false for a classifier
    std::int64_t num_layers = 0, hidden_size = 0, ffn_hidden_size = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_query_groups = 0;  // the number of key-value heads
    std::int64_t max_position_embeddings = 0;
    std::int64_t orig_vocab_size = 0;
    std::int64_t padded_vocab_size = 0;  // rounded up to a multiple of tp_degree
    std::int64_t num_labels = 0;         // 0 unless the model is a classifier
    std::int64_t num_experts = 0;        // experts of the first mixture; 0 without a mixture
    double hidden_dropout = 0, attention_dropout = 0;
    bool use_rotary_position_embeddings = false;
    std::optional<std::int64_t> eos_token_id = {};
};

// Options of pipeline and tensor parallel training. A model is divided into pp_degree stages, and
// the layers of a stage into tp_degree slices. Each slice of a stage has num_processes / (tp_degree
// * pp_degree) replicas, which average their gradients. MegatronEngine::train_step() or
// Accelerator::pipeline_step() runs a step. If no plugin is given and ACCELERATE_USE_MEGATRON_LM is
// true, the Accelerator creates one. The options up to use_distributed_optimizer,
// decoder_last_pipeline_num_layers, the parallel sizes, eod_mask_loss and the newer options are
// read from MEGATRON_LM_<OPTION> if they are not set. The degrees and expert_model_parallel_size
// then default to the sizes of parallelism_config. The Accelerator throws ValueError for invalid
// values, and UsageError if the plugin is combined with FSDP or DeepSpeed or contradicts
// parallelism_config.
//
// The processes are a mesh of pp_degree stages, replicas, and tp_degree slices of each layer
// (dist/tensor_parallel/); the ranks of the slices are consecutive.
//
// Options of Megatron-LM that Axle does not implement accept only values without effect, such as
// the default. For other values the Accelerator throws NotImplementedError, whose message names the
// replacement.
struct MegatronLMPlugin {
    std::optional<int> tp_degree = {};  // 1 by default
    std::optional<int> pp_degree = {};  // 1 by default
    // The number of micro-batches of a step (default: 1). A process reads batches of
    // num_micro_batches times the rows of a micro-batch.
    std::optional<int> num_micro_batches = {};
    // The norm to which steps of optimizers clip the gradients of all stages (default: 1); 0 turns
    // clipping off.
    std::optional<double> gradient_clipping = {};
    // Whether norms and dropout process parts of the sequence (dist::TensorParallelOptions;
    // default: false). Has no effect if tp_degree is 1.
    std::optional<bool> sequence_parallelism = {};
    // Whether backward recomputes activations (default: false). With recompute_granularity
    // "selective", it recomputes the weights of attention, as attention always does. With "full"
    // (the default), recompute_method decides which pieces of a stage store only their input.
    // "uniform" (the default): each group of recompute_num_layers pieces (default: 1) stores only
    // the group's input. "block": the first recompute_num_layers pieces store only their inputs,
    // and the other pieces store all activations.
    std::optional<bool> recompute_activations = {};
    std::string recompute_granularity = {};
    std::string recompute_method = {};
    std::optional<int> recompute_num_layers = {};
    // Whether replicas divide the states of optimizers (ZeRO-1; default: false).
    std::optional<bool> use_distributed_optimizer = {};
    // The number of layers of a stage of the interleaved schedule. A process then has several
    // stages. The stages must contain all layers of the model.
    std::optional<int> num_layers_per_virtual_pipeline_stage = {};
    // The number of layers of the last stage. The other layers are divided evenly among the other
    // stages. Not with stage_sizes or num_layers_per_virtual_pipeline_stage (ValueError).
    std::optional<int> decoder_last_pipeline_num_layers = {};
    // The number of consecutive replicas that divide the experts of nn::MixtureOfExperts (default:
    // 1). It must divide the number of replicas. num_experts is only compared with the number of
    // experts of the model's first mixture.
    std::optional<int> expert_model_parallel_size = {};
    std::optional<int> num_experts = {};
    // Context and expert tensor parallel sizes. Must be 1: use cp_size of ParallelismConfig.
    // (Accelerate's default for context_parallel_size is 2.)
    std::optional<int> context_parallel_size = {};
    std::optional<int> expert_tensor_parallel_size = {};

    // --- the schedule that prepare() creates for a MegatronLMDummyScheduler (megatron_schedule.h)

    // Whether the number of samples per update is computed from the smallest (true) or the largest
    // batch size of the loaders in the same call of prepare().
    bool is_train_batch_min = true;
    // The length of the run in updates, or instead in samples. The default of train_iters is
    // total_num_steps of the placeholder divided by the number of replicas. If the placeholder has
    // total_num_steps, train_samples only logs a warning.
    std::optional<std::int64_t> train_iters = {}, train_samples = {};
    // The style of the learning rate decay: "constant", "linear", "cosine", "inverse-square-root"
    // or "WSD" (optim::LrDecay).
    std::string lr_decay_style = "linear";
    // The ends of the decay and of the warmup, in the unit of the length of the run. By default,
    // the decay ends with the run. The warmup is a fraction of the decay or one of these numbers.
    // Its default is warmup_num_steps of the placeholder divided by the number of replicas.
    std::optional<std::int64_t> lr_decay_iters = {}, lr_decay_samples = {};
    std::optional<std::int64_t> lr_warmup_iters = {}, lr_warmup_samples = {};
    std::optional<double> lr_warmup_fraction = {};
    double min_lr = 0;
    // The style of the weight decay schedule: "constant", "linear" or "cosine"
    // (optim::WeightDecayIncrease). start_weight_decay and end_weight_decay are the weight decays
    // at the ends of the run; by default, both are the weight decay of the optimizer. A style other
    // than "constant" needs both (else ValueError).
    std::string weight_decay_incr_style = "constant";
    std::optional<double> start_weight_decay = {}, end_weight_decay = {};
    // Predicates on parameters: whether a parameter has no weight decay (default: biases and
    // vectors), and whether its rate is multiplied by lr_mult (default: none). Used by
    // megatron_param_groups().
    std::function<bool(const std::string& name, const Tensor& parameter)> no_wd_decay_cond = {};
    std::function<bool(const std::string& name, const Tensor& parameter)> scale_lr_cond = {};
    double lr_mult = 1;
    // The number of samples that earlier runs consumed. Must be empty, because a program resumes
    // with load_state().
    std::vector<std::int64_t> consumed_samples = {};

    // --- data

    // Whether Megatron-LM's datasets are used. Must be false: the program passes the loaders of its
    // datasets to prepare().
    bool megatron_dataset_flag = false;
    // The maximum length of a sequence; train_step() checks it. prepare() replaces it by
    // encoder_seq_length (BERT) or decoder_seq_length (GPT, Llama) if that option is set, and
    // logs a warning if seq_length was set to another length. If neither is set, prepare() sets
    // seq_length to max_position_embeddings of the model.
    std::optional<std::int64_t> seq_length = {}, encoder_seq_length = {}, decoder_seq_length = {};
    // Whether labels of the input token eod_token have no loss (default: false). The default of
    // eod_token is the first end-of-text token in the model's configuration.
    std::optional<bool> eod_mask_loss = {};
    std::optional<std::int64_t> eod_token = {};

    // --- logging and evaluation of MegatronEngine

    // The folder of an event file with the loss and the learning rate of each step and the loss of
    // evaluations. No file is written if it is empty. With set_all_logging_options, the file also
    // has the batch size, the weight decay, the gradient norm, the number of processes, and the
    // perplexity of evaluations.
    std::string tensorboard_dir = {};
    bool set_all_logging_options = false;
    // The number of batches of an evaluation, and the number of steps between evaluations.
    int eval_iters = 100, eval_interval = 1000;
    bool return_logits = false;  // whether steps return logits too

    // --- functions of the program

    // Creates the functions of a training step; its argument is custom_train_step_kwargs. Replaces
    // custom_get_batch_function and custom_loss_function.
    std::function<std::unique_ptr<AbstractTrainStep>(const Tree& kwargs)> custom_train_step_class =
        {};
    Tree custom_train_step_kwargs = {};
    // Creates the model in provide_model(). custom_prepare_model_function receives this function
    // and returns the model, for example after loading weights into it.
    using ModelProvider = std::function<std::unique_ptr<nn::Module>()>;
    ModelProvider custom_model_provider_function = {};
    std::function<std::unique_ptr<nn::Module>(const ModelProvider&)> custom_prepare_model_function =
        {};
    // Returns the batch that replaces the argument of train_step() and eval_step().
    std::function<Tree(const Tree& batch)> custom_get_batch_function = {};
    // The loss function of pipeline_step(), train_step() and eval_step(). The default is
    // nn::label_loss().
    std::function<Tensor(const Tensor& output, const Tree& batch)> custom_loss_function = {};
    // Further options of Megatron-LM as a map: "lr_warmup_init", "lr_wsd_decay_style",
    // "lr_wsd_decay_iters" and "lr_wsd_decay_samples".
    Tree other_megatron_args = {};

    // --- options of newer versions of Accelerate

    // Whether the loss of a step is the mean over its labels (average "tokens") or of its
    // micro-batches ("equal").
    std::optional<bool> calculate_per_token_loss = {};
    // The values that the configuration of a prepared model must have; unset values are not
    // checked.
    std::optional<double> attention_dropout = {}, hidden_dropout = {};
    std::optional<bool> use_rotary_position_embeddings = {};
    // Options of attention. Must be true, because Axle chooses the attention kernel, and computes
    // the softmax of attention in f32.
    std::optional<bool> attention_backend = {}, attention_softmax_in_fp32 = {};
    // Options that are not implemented. Must be false.
    std::optional<bool> use_custom_fsdp = {}, optimizer_cpu_offload = {};
    std::optional<bool> overlap_cpu_optimizer_d2h_h2d = {}, use_precision_aware_optimizer = {};
    std::optional<bool> no_load_optim = {}, no_save_optim = {};

    // --- options that Accelerate does not have

    // The schedule of the pipeline: "gpipe", "1f1b" (default), "interleaved" or "zero_bubble"
    // (dist/pipeline/schedule.h). "interleaved" is the default with
    // num_layers_per_virtual_pipeline_stage.
    std::string schedule = {};
    // The average of the losses of micro-batches: "rows" (default), "equal" or "tokens"
    // (MicroBatchAverage).
    std::string average = {};
    // The number of pieces of each stage; balanced if empty.
    std::vector<int> stage_sizes = {};
    // Returns the pieces of a model. The default is nn::pieces_of().
    std::function<std::vector<nn::Piece>(nn::Module&)> pieces = {};

    // The sizes of the first prepared model for which network_of() returns sizes, or nullopt.
    std::optional<MegatronNetwork> network = {};
};

}  // namespace axle::accel
