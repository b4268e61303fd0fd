// Private to accel: what gradients are divided by when the micro-batches of an update are complete.
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

// A window is the micro-batches of one update. Of losses that are sums with weights, gradients are
// sums too until the backward pass that completes the window has ended: then they are divided by
// what all processes have added to the weight, over their number, as the reducer took the mean. Of
// means that were divided by more micro-batches than the window turned out to have, gradients are
// multiplied there.
//
// Parameters go in parts: those of one model and one optimizer, which are forgotten together. A
// part that gets more after it was divided is made a sum again before: however many losses a
// micro-batch has, their gradients have one divisor.
class GradientDivision {
  public:
    GradientDivision();
    ~GradientDivision() = default;
    GradientDivision(const GradientDivision&) = delete;
    GradientDivision& operator=(const GradientDivision&) = delete;

    // What is prepared, if that has changed; `replicas` are the models', null where alone.
    void set_objects(const std::vector<nn::Module*>& models,
                     const std::vector<std::shared_ptr<dist::DataParallel>>& replicas,
                     const std::vector<optim::Optimizer*>& optimizers);
    void clear() { parts_.clear(), index_.clear(), sizes_.clear(), kind_ = Kind::none; }

    void begin_window() { ++window_, kind_ = Kind::none; }
    // loss.backward(), where `loss` is what it says times the scaler's scale. UsageError where the
    // other kind was in this window before, and for sums that reach nothing that is prepared.
    // `completes` says whether the window ends here.
    void backward_sum(const Tensor& loss, const Tensor& weight, int processes, bool completes);
    // Of means that are divided by other micro-batches than there are: by the share that
    // set_share() says.
    void backward_mean(const Tensor& loss, bool completes, bool retain_graph);
    // The micro-batches of a window that ends now over those that its losses were divided by.
    void set_share(double share) { share_ = share; }
    void note_mean() { note(Kind::means); }

    // Before gradients are looked at, where no pass that completes the window has reached them:
    // then what this process has added counts.
    void divide(const optim::Optimizer& optimizer);
    void divide(const std::vector<Tensor>& parameters);
    void divide_all();
    void before_step(const optim::Optimizer& optimizer);
    void before_zero_grad(const optim::Optimizer& optimizer);
    // Forgets the gradients.
    void discard();

    // For checkpoints: a list with what each part has. Taken up for another number of processes,
    // it goes with gradients that are the mean of those that were saved.
    Tree state(const std::vector<nn::Module*>& models,
               const std::vector<optim::Optimizer*>& optimizers) const;
    // `states` are those of all processes that saved.
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
        Tensor weight = {};       // f64: this process's, of sums
        Tensor divisor = {};      // f64: gradients have been divided by it
        std::int64_t window = 0;  // in which they last got something
        bool is_open = false;     // and are to be divided yet
        bool is_reached = false;  // by this pass
    };
    // Leaves of any pass are looked up from any thread.
    struct Door {
        std::atomic<std::thread::id> inside{};
        GradientDivision* division;
    };

    void note(Kind kind);
    void run(const Tensor& loss, bool retain_graph = false);
    void on_begin(const std::vector<Tensor>& leaves);
    void open(Part& part) const;
    Part& part_of(const nn::Module* model, const optim::Optimizer* optimizer);
    static bool has_gradients(const Part& part);
    // Whether it, or another part of its model, has: the weight counts for all of a model.
    bool holds_sum(const Part& part) const;
    void close(Part& part, const Tensor& divisor) const;
    void close_here(Part& part);

    std::vector<std::unique_ptr<Part>> parts_;
    std::unordered_map<const Impl*, Part*> index_;
    std::vector<std::size_t> sizes_;  // by which a change is seen
    std::int64_t window_ = 0;
    Kind kind_ = Kind::none;
    double share_ = 1;
    std::shared_ptr<Door> door_;
    autograd::HookHandle hook_;
};

}  // namespace axle::accel
