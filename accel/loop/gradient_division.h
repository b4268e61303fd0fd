// Private to accel: divides accumulated gradients when the micro-batches of an update are complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/parallel/distributed_model.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::accel {

// Divides the gradients of a window, the micro-batches of one update. Two kinds of losses need a
// division:
// - Sums with weights: the gradients are divided when the last backward pass of the window ends.
//   The divisor is the sum of the weights over all processes divided by the number of processes,
//   because the reducer has already averaged the gradients over processes.
// - Means in a short window: each loss was divided by the number of micro-batches of a full window.
//   The gradients are divided by the ratio of the two numbers (short to full).
//
// Parameters are grouped in parts: a part has the parameters of one model and one optimizer. If a
// part gets more gradients after its division, the division is undone first, so that all losses of
// a window have the same divisor. Used by one thread, apart from the backward hook, which ignores
// backward passes of other threads.
class GradientDivision {
  public:
    GradientDivision();
    ~GradientDivision() = default;
    GradientDivision(const GradientDivision&) = delete;
    GradientDivision& operator=(const GradientDivision&) = delete;

    // Sets the prepared objects. Does nothing if the models, the optimizers and the parameters of
    // the optimizers are the same as in the last call, and no object was removed since.
    // `replicas` has one element per model, nullptr if the model's gradients are not averaged.
    void set_objects(const std::vector<nn::Module*>& models,
                     const std::vector<std::shared_ptr<dist::DistributedModel>>& replicas,
                     const std::vector<optim::Optimizer*>& optimizers);
    // Removes a model with its divisions. Only its address is used, because it may be destroyed
    // already.
    void remove(const nn::Module& model);
    // Replaces the address of a model that was moved.
    void replace(const nn::Module& from, const nn::Module& to);
    // Removes an optimizer with its divisions. Only its address is used.
    void remove(const optim::Optimizer& optimizer);
    void clear() { parts_.clear(), index_.clear(), objects_.clear(), kind_ = Kind::none; }

    // Begins a window, whose losses may be of another kind (means or sums) than earlier losses.
    void begin_window() { ++window_, kind_ = Kind::none; }
    // Differentiates a scaled loss that is a sum of `weight` items. `processes` is the number of
    // processes with different samples. `completes` is true if this pass completes the window.
    // Throws UsageError if an earlier loss of the window is a mean, or if the loss does not depend
    // on a prepared parameter.
    void backward_sum(const Tensor& loss, const Tensor& weight, int processes, bool completes);
    // Differentiates a scaled loss that is a mean. Its gradients are divided by the number passed
    // to set_share(). Throws UsageError if an earlier loss of the window is a sum.
    void backward_mean(const Tensor& loss, bool completes, bool retain_graph);
    // Sets the number of micro-batches of the window that have begun, divided by the number of
    // micro-batches in a full window.
    void set_share(double share) { share_ = share; }
    // Records that the window has a loss that is a mean and needs no division. Throws UsageError,
    // with a message that begins with `op`, if the window has losses that are sums.
    void note_mean(const char* op) { note(op, Kind::means); }

    // Divide gradients before the program reads them: by the sum of this process's weights or, for
    // means, by the number passed to set_share(). Do nothing for parts that the last backward pass
    // of the window has already divided.
    void divide(const optim::Optimizer& optimizer);
    void divide(const std::vector<Tensor>& parameters);
    void divide_all();
    // Called before an optimizer steps, and before it clears its gradients.
    void before_step(const optim::Optimizer& optimizer);
    void before_zero_grad(const optim::Optimizer& optimizer);
    // Clears the gradients and the weights.
    void discard();

    // Returns a list with the weight and divisor of each part that has a weight and gradients, for
    // checkpoints. The list is empty unless the losses of the window are sums.
    Tree state(const std::vector<nn::Module*>& models,
               const std::vector<optim::Optimizer*>& optimizers) const;
    // Loads the checkpoint's states, one for each process that saved one. If there are `processes`
    // states, loads the state of `process` only. Otherwise divides the weights of all states among
    // the processes, and the gradients must be the mean of the saved gradients. Throws ValueError
    // if a state names an object that is not prepared.
    void load_state(const std::vector<Tree>& states, int process, int processes,
                    const std::vector<nn::Module*>& models,
                    const std::vector<optim::Optimizer*>& optimizers);

  private:
    enum class Kind : std::uint8_t { none, means, sums };
    struct Part {
        const nn::Module* model = nullptr;
        const optim::Optimizer* optimizer = nullptr;
        dist::DistributedModel* replicas = nullptr;
        std::vector<Tensor> parameters = {};
        // f64 scalar: the sum of this process's weights; after the division, `divisor`; undefined
        // for means
        Tensor weight = {};
        Tensor divisor = {};      // f64 scalar: the number that the gradients were divided by
        std::int64_t window = 0;  // the last window in which the part got gradients
        bool is_open = false;     // whether the part's gradients must still be divided
        bool is_reached = false;  // whether the current backward pass reaches the part's model
    };
    // The state shared with the backward hook, which is called for backward passes of all threads.
    struct HookState {
        std::atomic<std::thread::id> running_thread{};  // the thread that is in run()
        GradientDivision* division;
    };

    template <class F>
    void remove_if(F&& f);
    void note(const char* op, Kind kind);
    void run(const Tensor& loss, bool retain_graph = false);
    void on_begin(const std::vector<Tensor>& leaves);
    void open(Part& part) const;
    Part& part_of(const nn::Module* model, const optim::Optimizer* optimizer);
    static bool has_gradients(const Part& part);
    // Returns whether the part, or another part of the same model, has gradients. A weight applies
    // to all parts of a model.
    bool holds_sum(const Part& part) const;
    void close(Part& part, const Tensor& divisor) const;
    void close_here(Part& part);

    std::vector<std::unique_ptr<Part>> parts_;
    std::unordered_map<const Impl*, Part*> index_;
    // The addresses of the models, the optimizers and their parameters, to detect changes.
    std::vector<const void*> objects_;
    std::int64_t window_ = 0;
    Kind kind_ = Kind::none;
    double share_ = 1;
    std::shared_ptr<HookState> hook_state_;
    autograd::HookHandle hook_;
};

}  // namespace axle::accel
