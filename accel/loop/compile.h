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
    // The number of steps of each kind that run eagerly before one is captured; at least 1. They
    // set up what can't be captured, such as optimizer state and library plans.
    int warmup_steps = 3;
};

// Runs a function from a batch to a tensor, such as a training step; Accelerator::compile() returns
// it. On a CPU each call runs the function. On a GPU the function runs eagerly a few times, is then
// captured as a CUDA graph (core/graph.h), and is replayed from then on, with the same results but
// without the host's work.
//
// A graph is valid for batches of the same shapes and dtypes at the same position of a gradient
// accumulation. Any other batch runs eagerly, and is captured after enough such batches. A replay
// repeats on the host what the function did with the Accelerator's objects: accumulate(), and
// step() of schedulers. Other side effects of the function on the host happen when it runs, not
// when it is replayed. Reading a value, as item() does, can't be captured: such a step keeps
// running eagerly, and the reason is logged once.
//
// If an optimizer has exactly one prepared schedule, its learning rates for the next thousand steps
// are stored on the GPU, together with the number of steps taken. In fp16 only the GPU can tell
// skipped steps from taken ones, and replays don't wait for it. The schedule and param_groups() are
// brought up to date when they are read, which waits for the GPU in fp16. The rates of other
// optimizers (without a schedule, with several, or with one that can't look ahead) are copied
// before each replay; in fp16 with a schedule, each replay then waits for the previous one.
//
// Graphs are captured again after parameters or optimizer state have moved to other memory, as
// loading a checkpoint does, and after requires_grad of a parameter has changed. All other tensors
// that the function uses must keep their memory.
//
// The result is a new tensor without gradient history. Used by one thread. The Accelerator and the
// objects that it has prepared must outlive the CompiledStep.
class CompiledStep {
  public:
    // Called by Accelerator::compile(). Throws ValueError if warmup_steps is less than 1.
    CompiledStep(StepCapture& capture, std::function<Tensor(Tree&)> step, CompileOptions options);
    ~CompiledStep();
    CompiledStep(CompiledStep&&) noexcept;
    CompiledStep& operator=(CompiledStep&&) noexcept;

    Tensor operator()(Tree& batch);
    Tensor operator()(Tree&& batch) { return (*this)(batch); }

    // Return the numbers of calls that ran eagerly, captures and replays.
    std::int64_t eager_steps() const;
    std::int64_t captures() const;
    std::int64_t replays() const;

  private:
    struct Compiled;
    std::unique_ptr<Compiled> compiled_;
};

}  // namespace axle::accel
