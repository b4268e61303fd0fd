// CompiledStep: a training step that is captured as a CUDA graph and replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::accel {

class StepCapture;

struct CompileOptions {
    // The smallest number of steps that run eagerly before a step with the same shapes is captured,
    // at least 1. The eager steps create objects that cannot be created during a capture, such as
    // optimizer state and plans of CUDA libraries.
    int warmup_steps = 3;
};

// A function from a batch to a tensor, such as a training step, that is captured as a CUDA graph.
// Returned by Accelerator::compile(). On a CPU each call runs the function. On a GPU the function
// runs eagerly a few times and is then captured (core/cuda/graph.h). Later calls replay the graph,
// with the same results but with less work on the host.
//
// A graph is valid for batches of the same shapes and dtypes at the same position in an update. A
// batch of another kind runs eagerly until enough batches of its kind have run; then a graph is
// captured for it. A replay repeats the calls of accumulate(), and of step() of schedulers, on the
// host. It does not repeat other side effects of the function on the host. A step that reads a
// value from the GPU, for example with item(), or whose parameters are sharded over processes,
// can't be captured. It keeps running eagerly, and the reason is logged once.
//
// If an optimizer has exactly one prepared schedule, its learning rates for the next thousand steps
// are stored on the GPU, together with the number of steps taken. In fp16 the GPU decides which
// steps are skipped, and replays do not wait for this decision. Reading the schedule or
// param_groups() first updates them; in fp16 this waits for the GPU. The rates of an optimizer
// without a schedule, with several schedules, or with a schedule whose next rates can't be computed
// in advance are copied before each replay. In fp16, if such an optimizer has a schedule, the host
// waits for each replay.
//
// A graph is captured again if the storage of parameters, buffers or optimizer state has been
// replaced, for example by loading a checkpoint, or if requires_grad of a parameter has changed.
// The storage of all other tensors that the function uses must not be replaced.
//
// All graphs of a CompiledStep share their memory, so steps of several kinds need as much memory as
// the largest one. Other tensors that the function stores, except gradients and results, are valid
// until the next call.
//
// The result of a call is not part of an autograd graph, and is undefined if the function returns
// an undefined tensor. Used by one thread. The Accelerator and the objects that it has prepared
// must outlive the CompiledStep.
class CompiledStep {
  public:
    // Called by Accelerator::compile(). Throws ValueError if warmup_steps is less than 1.
    CompiledStep(StepCapture& capture, std::function<Tensor(Tree&)> step, CompileOptions options);
    ~CompiledStep();
    CompiledStep(CompiledStep&&) noexcept;
    CompiledStep& operator=(CompiledStep&&) noexcept;

    Tensor operator()(Tree& batch);
    Tensor operator()(Tree&& batch) { return (*this)(batch); }

    // Return the number of calls that ran eagerly, that captured a graph and ran it for the first
    // time, and that replayed a graph.
    std::int64_t eager_steps() const;
    std::int64_t captures() const;
    std::int64_t replays() const;

  private:
    struct Compiled;
    OwningPtr<Compiled> compiled_;
};

}  // namespace axle::accel
