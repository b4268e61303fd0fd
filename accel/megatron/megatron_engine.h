// MegatronEngine: the training loop of Megatron-LM for a model that prepare() has divided into the
// stages of a pipeline. Also declares Accelerate's helper functions for Megatron-LM.
//
//     accelerator.prepare(gpt, adamw, train_loader, scheduler);
//     accel::MegatronEngine engine(accelerator, gpt);
//     for (auto& batch : train_loader) {
//         auto [loss, logits] = engine.train_step(batch);  // also updates and clears gradients
//         if (engine.is_evaluation_due()) accelerator.print(engine.evaluate(test_loader));
//     }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accel/megatron/megatron_plugin.h"
#include "core/memory/owning_ptr.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "data/loading/loader.h"
#include "nn/module.h"

namespace axle::accel {

class Accelerator;
class SummaryWriter;

struct TrainStepOutput {
    Tensor loss;  // the mean over micro-batches and replicas: f64, 0-d
    // The outputs for the rows of this process's batch, if MegatronLMPlugin::return_logits is set.
    // With the average "tokens", micro-batches without labels are left out. Undefined on processes
    // without the last stage.
    Tensor logits;
};

// The training loop of Megatron-LM. Refers to the Accelerator and the model, which must outlive
// this object and must not be moved. All processes must call the same functions. Not thread-safe.
class MegatronEngine {
  public:
    // Calls custom_train_step_class to create the functions of the training step. Throws UsageError
    // if the model has no pipeline, or if custom_train_step_class returns null.
    MegatronEngine(Accelerator& accelerator, nn::Module& model);
    ~MegatronEngine();
    MegatronEngine(const MegatronEngine&) = delete;
    MegatronEngine& operator=(const MegatronEngine&) = delete;

    // Computes the gradients of a batch, and calls step() and zero_grad() of the prepared
    // optimizers of the model and step() of their prepared schedules. As in Accelerate, the
    // program's own calls of these functions then do nothing until the next gradients are computed.
    // Throws the errors of Pipeline::step(), and ValueError if a sequence is longer than
    // seq_length.
    TrainStepOutput train_step(const Tree& batch);
    // Computes the loss without gradients, in the mode of the model. Throws the same errors.
    TrainStepOutput eval_step(const Tree& batch);
    // Calls train_step() if the model is in training mode, otherwise eval_step().
    TrainStepOutput operator()(const Tree& batch);

    // Returns the mean of the losses of the first eval_iters batches of a loader, in evaluation
    // mode. Throws ValueError if the loader has no batch, and the errors of eval_step().
    double evaluate(data::DataLoader& loader);
    // Returns whether the number of steps is a multiple of eval_interval and not 0.
    bool is_evaluation_due() const;
    // Returns the number of training steps of the pipeline, which checkpoints contain.
    std::int64_t iteration() const;

  private:
    struct Recorded;

    const MegatronLMPlugin& plugin() const;
    Tree batch_for_step(const char* op, const Tree& batch) const;
    std::function<Tensor(const Tensor&, const Tree&)> loss_function(Recorded& recorded) const;
    SummaryWriter* log();

    Accelerator& accelerator_;
    nn::Module& model_;
    std::unique_ptr<AbstractTrainStep> train_step_;
    OwningPtr<SummaryWriter> log_;
};

// Returns a tensor with one element per loss: its mean over the replicas. Each loss must have one
// element (else ShapeError). All processes with the same stage must call this function, with the
// same number of losses. Throws UsageError without a megatron_lm_plugin.
Tensor avg_losses_across_data_parallel_group(const Accelerator& accelerator,
                                             const std::vector<Tensor>& losses);
// Returns a nested value with the tensors of all replicas, as dist::gather() does. Throws
// UsageError without a megatron_lm_plugin, and the errors of dist::gather().
Tree gather_across_data_parallel_groups(const Accelerator& accelerator, const Tree& tree);

// Creates a model with the functions of the Accelerator's megatron_lm_plugin and prepares it.
// Throws UsageError without the plugin or its custom_model_provider_function, or if a function
// returns null, and the errors of Accelerator::prepare().
std::unique_ptr<nn::Module> provide_model(Accelerator& accelerator);

}  // namespace axle::accel
