// Computes gradients of parameters after backward(), as zero-bubble pipelines require.
//
//     autograd::GradientQueue queue;
//     {
//         const autograd::DeferGradients scope(queue);
//         autograd::backward({y}, {dy});   // computes the gradients of inputs
//     }
//     queue.flush();                       // computes the gradients of weights
//
// linear() and feed_forward() put the gradients of their weights and biases in the queue. All other
// gradients are computed by backward().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/autograd/autograd.h"

namespace axle::autograd {

struct DeferredGradient;

// Computations of gradients that backward() has postponed. Used by one thread at a time.
class GradientQueue {
  public:
    GradientQueue();
    ~GradientQueue();
    GradientQueue(GradientQueue&&) noexcept;
    GradientQueue& operator=(GradientQueue&&) noexcept;

    // Computes the gradients in the order in which they were queued, accumulates them in the leaves
    // as backward() does, and calls the hooks of backward(). A leaf is final when all of its queued
    // gradients are accumulated. The queue is empty afterwards. Throws UsageError if an earlier
    // pass freed the graph.
    void flush();
    std::size_t size() const;
    // Returns the bytes of the tensors that the queue keeps for the computations.
    std::int64_t bytes() const { return bytes_; }

  private:
    friend bool defer_gradients(std::vector<int>, std::int64_t, std::function<Grads()>);
    std::vector<DeferredGradient> entries_;
    std::int64_t bytes_ = 0;
};

// While the scope exists, backward() on this thread puts gradients in the queue. grad() does not,
// because it must return the gradients.
class [[nodiscard]] DeferGradients {
  public:
    // Gradients of tensors that depend on the leaf `input` are not queued.
    explicit DeferGradients(GradientQueue& queue, const Tensor& input = {});
    ~DeferGradients();
    DeferGradients(const DeferGradients&) = delete;
    DeferGradients& operator=(const DeferGradients&) = delete;

  private:
    GradientQueue* before_;
    const Impl* input_before_;
};

// Removes the queue of this thread while it exists. grad() uses it.
class [[nodiscard]] SuspendDeferral {
  public:
    SuspendDeferral();
    ~SuspendDeferral();
    SuspendDeferral(const SuspendDeferral&) = delete;
    SuspendDeferral& operator=(const SuspendDeferral&) = delete;

  private:
    GradientQueue* before_;
};

// Returns whether this thread has a queue. False while grad() runs.
bool is_deferring();

// Called by gradient rules. Queues compute(), which must return the gradients of some inputs of the
// node whose rule is running. `inputs` are the indices of these inputs, in the order of the
// gradients. `bytes` is the size of the tensors that compute() keeps. The rule must then return
// undefined gradients for these inputs. Queues nothing and returns false if this thread has no
// queue or if rules are recorded. It also returns false if one of these inputs depends on the leaf
// given to DeferGradients.
bool defer_gradients(std::vector<int> inputs, std::int64_t bytes, std::function<Grads()> compute);

}  // namespace axle::autograd
