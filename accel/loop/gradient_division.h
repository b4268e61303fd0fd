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
#include "dist/parallel/data_parallel.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::accel {

// A window is the micro-batches of one update. Two kinds of losses need a division:
// - Losses that are sums, with weights: their gradients are sums until the backward pass that
//   completes the window ends. Then they are divided by the sum of the weights of all processes
//   over the number of processes, because the reducer has already taken the mean.
// - Losses that are means, but divided by more micro-batches than a short window has. Their
//   gradients are divided by the window's share of these micro-batches.
//
// Parameters are grouped in parts: the parameters of one model and one optimizer, whose gradients
// are cleared together. If a part gets more gradients after it was divided, it is first multiplied
// back to a sum. So all losses of a window have the same divisor. Used by one thread, apart from
// the backward hook, which ignores passes of other threads.
class GradientDivision {
  public:
    GradientDivision();
    ~GradientDivision() = default;
    GradientDivision(const GradientDivision&) = delete;
    GradientDivision& operator=(const GradientDivision&) = delete;

    // Sets the prepared objects, unless they are unchanged. `replicas` are the models' replicas, or
    // nullptr.
    void set_objects(const std::vector<nn::Module*>& models,
                     const std::vector<std::shared_ptr<dist::DataParallel>>& replicas,
                     const std::vector<optim::Optimizer*>& optimizers);
    void clear() { parts_.clear(), index_.clear(), sizes_.clear(), kind_ = Kind::none; }

    void begin_window() { ++window_, kind_ = Kind::none; }
    // Differentiates a scaled loss that is a sum of `weight` items. `completes`: the window ends
    // with this pass. Throws UsageError if the window has losses of the other kind, or if the loss
    // reaches nothing that is prepared.
    void backward_sum(const Tensor& loss, const Tensor& weight, int processes, bool completes);
    // Differentiates a scaled loss that is a mean, whose gradients are divided by set_share().
    void backward_mean(const Tensor& loss, bool completes, bool retain_graph);
    // Sets the number of micro-batches in the window so far over the number that losses are divided
    // by.
    void set_share(double share) { share_ = share; }
    // Notes a loss that is a mean and needs no division. Throws UsageError if the window has sums.
    void note_mean() { note(Kind::means); }

    // Divide gradients before they are read, by the weights of this process alone. Do nothing for
    // gradients that a pass which completes the window has reached.
    void divide(const optim::Optimizer& optimizer);
    void divide(const std::vector<Tensor>& parameters);
    void divide_all();
    void before_step(const optim::Optimizer& optimizer);
    void before_zero_grad(const optim::Optimizer& optimizer);
    // Clears the gradients and the weights.
    void discard();

    // Returns a list with the weights and divisors of each part, for checkpoints.
    Tree state(const std::vector<nn::Module*>& models,
               const std::vector<optim::Optimizer*>& optimizers) const;
    // Takes the states of all processes that saved. If the number of processes has changed, expects
    // gradients that are the mean of the saved gradients.
    void load_state(const std::vector<Tree>& states, int process, int processes,
                    const std::vector<nn::Module*>& models,
                    const std::vector<optim::Optimizer*>& optimizers);

  private:
    enum class Kind : std::uint8_t { none, means, sums };
    struct Part {
        const nn::Module* model = nullptr;
        const optim::Optimizer* optimizer = nullptr;
        dist::DataParallel* replicas = nullptr;
        std::vector<Tensor> parameters = {};
        Tensor weight = {};       // f64: sum of this process's weights
        Tensor divisor = {};      // f64: the gradients have been divided by it
        std::int64_t window = 0;  // the window in which it last got gradients
        bool is_open = false;     // whether its gradients must still be divided
        bool is_reached = false;  // whether the current pass has reached it
    };
    // Shared with the backward hook, which is called for passes of all threads.
    struct HookState {
        std::atomic<std::thread::id> running_thread{};  // in run()
        GradientDivision* division;
    };

    void note(Kind kind);
    void run(const Tensor& loss, bool retain_graph = false);
    void on_begin(const std::vector<Tensor>& leaves);
    void open(Part& part) const;
    Part& part_of(const nn::Module* model, const optim::Optimizer* optimizer);
    static bool has_gradients(const Part& part);
    // Returns whether the part or another part of its model has gradients: a weight applies to a
    // whole model.
    bool holds_sum(const Part& part) const;
    void close(Part& part, const Tensor& divisor) const;
    void close_here(Part& part);

    std::vector<std::unique_ptr<Part>> parts_;
    std::unordered_map<const Impl*, Part*> index_;
    std::vector<std::size_t> sizes_;  // the sizes of models and groups, to detect changes
    std::int64_t window_ = 0;
    Kind kind_ = Kind::none;
    double share_ = 1;
    std::shared_ptr<HookState> hook_state_;
    autograd::HookHandle hook_;
};

}  // namespace axle::accel
