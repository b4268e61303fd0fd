// A training step that is captured once and replayed: what Accelerator::compile() returns.
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
    // Steps of each kind that run eagerly before one is captured: they set up what can't be
    // captured, such as optimizer state and library plans. At least 1.
    int warmup_steps = 3;
};

// step(batch) does what the function does and returns its result. On a CPU it is a call of the
// function. On a GPU the function runs eagerly a few times, is then captured as a CUDA graph
// (core/graph.h), and replayed from there on: the same numbers, without the host's work.
//
// A graph is good for batches of the same shapes and dtypes at the same place of an accumulation;
// another batch runs eagerly and is captured in its turn. A replay repeats on the host what the
// function did with the Accelerator's objects: accumulate(), and step() of schedulers. Whatever
// else the function does on the host it does while it runs and not while it is replayed. Reading a
// value, as in item(), can't be captured: such a step keeps running eagerly, and the reason is
// logged once.
//
// Learning rates of an optimizer with one prepared schedule lie on the GPU, for a thousand steps of
// the schedule ahead, and so does the count of the steps taken: in f16 only the GPU knows which
// were skipped, and replays don't wait to hear of it. The schedule and param_groups() are up to
// date whenever they are asked, and asking waits in f16. The rates of other optimizers (without a
// schedule, with several, or with one that can't look ahead) are handed over before each replay;
// in f16 each replay then waits for the one before, if there is a schedule.
//
// Graphs are made anew when parameters or optimizer state get other memory, as a checkpoint that is
// loaded gives them, or are frozen. Other tensors of the caller's that the function uses must stay
// where they are.
//
// The result is a tensor of the caller's own, without history. One thread at a time; the
// Accelerator and what it has prepared must live as long.
class CompiledStep {
  public:
    // For Accelerator::compile().
    CompiledStep(StepCapture& capture, std::function<Tensor(Tree&)> step, CompileOptions options);
    ~CompiledStep();
    CompiledStep(CompiledStep&&) noexcept;
    CompiledStep& operator=(CompiledStep&&) noexcept;

    Tensor operator()(Tree& batch);
    Tensor operator()(Tree&& batch) { return (*this)(batch); }

    // So far.
    std::int64_t eager_steps() const;
    std::int64_t captures() const;
    std::int64_t replays() const;

  private:
    struct Compiled;
    std::unique_ptr<Compiled> compiled_;
};

}  // namespace axle::accel
