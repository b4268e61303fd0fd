#include "accel/compile.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/autograd.h"
#include "core/log.h"
#include "core/ops.h"
#include "core/profiler.h"
#if AXLE_CUDA
#include "core/graph.h"
#endif

namespace axle::inline v0::accel {

#if AXLE_CUDA
namespace {

std::vector<Tensor> tensors_of(const Tree& tree) {
    std::vector<Tensor> found;
    for_each_tensor(tree, [&](const Tensor& t) { found.push_back(t); });
    return found;
}

// What two batches that one graph serves have in common: everything but the elements of tensors.
std::string kind_of(const Tree& batch) {
    return to_json(map_tensors(batch, [](const Tensor& t) {
        return Tree(str(t.shape(), " ", t.dtype(), " on ", t.device()));
    }));
}

// The homes that gradients lie in when a step begins, null where there is none.
using Homes = std::vector<std::shared_ptr<Storage>>;

Homes homes_of(const std::vector<Tensor>& gradients) {
    Homes homes;
    for (const Tensor& g : gradients) homes.push_back(g.defined() ? g.impl()->storage : nullptr);
    return homes;
}

}  // namespace

struct CompiledStep::Compiled {
    Accelerator& accelerator;
    std::function<Tensor(Tree&)> step;
    CompileOptions options;
    std::int64_t eager = 0, captured = 0, replayed = 0;
    bool refused = false;  // the function does what can't be captured

    // A kind of step: of a batch, and at a place of the accumulation.
    struct Captured {
        std::string kind;
        Homes homes_before;
        std::vector<Tensor> gradients_after;
        Tree input;     // the batch that the graph reads
        Tensor output;  // where it writes
        StepRecord host;
        Graph graph;
    };
    std::vector<std::unique_ptr<Captured>> graphs;
    std::vector<std::pair<std::string, int>> warmed;  // eager steps by kind

    Compiled(Accelerator& a, std::function<Tensor(Tree&)> s, CompileOptions o)
        : accelerator(a), step(std::move(s)), options(o) {}

    std::vector<Tensor> gradients() const {
        std::vector<Tensor> all;
        for (const Tensor& p : accelerator.step_parameters()) all.push_back(p.grad());
        return all;
    }

    Captured* find(const std::string& kind) {
        const Homes homes = homes_of(gradients());
        for (const auto& c : graphs)
            if (c->kind == kind && c->homes_before == homes) return c.get();
        return nullptr;
    }

    // Gradients that an eager step made lie elsewhere the next time: a graph must begin with none,
    // or with those that another graph leaves.
    bool can_begin_here() {
        const Homes homes = homes_of(gradients());
        if (std::ranges::all_of(homes, [](const auto& h) { return h == nullptr; })) return true;
        return std::ranges::any_of(
            graphs, [&](const auto& c) { return homes_of(c->gradients_after) == homes; });
    }

    int& warmed_by(const std::string& kind) {
        for (auto& [known, count] : warmed)
            if (known == kind) return count;
        return warmed.emplace_back(kind, 0).second;
    }

    Tensor run(Tree& batch) {
        const Tensor y = step(batch);
        return y.defined() ? y.detach() : y;
    }

    // Captures the step and replays it once. Nothing, and everything as before, where it can't be.
    std::optional<Tensor> capture(const std::string& kind, const Tree& batch) {
        accelerator.hand_over_hyperparameters();
        auto c = std::make_unique<Captured>();
        c->kind = kind;
        c->homes_before = homes_of(gradients());
        {
            const NoGrad no_grad;
            c->input = map_tensors(batch, [](const Tensor& t) { return Tree(clone(t.detach())); });
        }
        const Accelerator::BeforeStep before = accelerator.before_step();
        const std::vector<Tensor> gradients_before = gradients();
        try {
            Tree input = c->input;
            GraphCapture scope(c->graph);
            accelerator.record_step(&c->host);
            c->output = run(input);
            accelerator.record_step(nullptr);
            scope.end();
        } catch (const Error& error) {
            accelerator.record_step(nullptr);
            accelerator.rewind_step(before);
            set_gradients(gradients_before);
            refused = true;
            log(LogLevel::warning,
                "compile: the step can't be captured and keeps running eagerly: ", error.what());
            return std::nullopt;
        }
        c->gradients_after = gradients();
        graphs.push_back(std::move(c));
        ++captured;
        return launch(*graphs.back());
    }

    void set_gradients(const std::vector<Tensor>& gradients) {
        const std::vector<Tensor> params = accelerator.step_parameters();
        for (std::size_t i = 0; i < params.size(); ++i) {
            if (gradients[i].defined())
                params[i].set_grad(gradients[i]);
            else
                params[i].zero_grad();
        }
    }

    Tensor launch(Captured& c) {
        c.graph.replay();
        accelerator.note_replay();
        const NoGrad no_grad;
        return c.output.defined() ? clone(c.output) : Tensor();
    }

    Tensor replay(Captured& c, const Tree& batch) {
        const profiler::Scope scope("replay", profiler::Category::optimizer);
        {
            const NoGrad no_grad;
            const std::vector<Tensor> from = tensors_of(batch);
            std::vector<Tensor> to = tensors_of(c.input);
            for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
        }
        for (int i = 0; i < c.host.accumulations; ++i) accelerator.advance_accumulation();
        accelerator.hand_over_hyperparameters();
        const Tensor y = launch(c);
        set_gradients(c.gradients_after);
        for (optim::Scheduler* scheduler : c.host.schedulers) scheduler->step();
        ++replayed;
        return y;
    }

    Tensor operator()(Tree& batch) {
        if (!accelerator.device().is_cuda() || refused) {
            ++eager;
            return run(batch);
        }
        const std::string kind = str(accelerator.step_kind(), " ", kind_of(batch));
        if (Captured* const c = find(kind)) return replay(*c, batch);
        int& count = warmed_by(kind);
        if (count >= options.warmup_steps && can_begin_here())
            if (const std::optional<Tensor> y = capture(kind, batch)) return *y;
        ++count;
        ++eager;
        return run(batch);
    }
};
#else
struct CompiledStep::Compiled {
    std::function<Tensor(Tree&)> step;
    std::int64_t eager = 0, captured = 0, replayed = 0;

    Compiled(Accelerator&, std::function<Tensor(Tree&)> s, CompileOptions) : step(std::move(s)) {}

    Tensor operator()(Tree& batch) {
        ++eager;
        const Tensor y = step(batch);
        return y.defined() ? y.detach() : y;
    }
};
#endif

CompiledStep::CompiledStep(Accelerator& accelerator, std::function<Tensor(Tree&)> step,
                           CompileOptions options)
    : compiled_(std::make_unique<Compiled>(accelerator, std::move(step), options)) {}
CompiledStep::~CompiledStep() = default;
CompiledStep::CompiledStep(CompiledStep&&) noexcept = default;
CompiledStep& CompiledStep::operator=(CompiledStep&&) noexcept = default;

Tensor CompiledStep::operator()(Tree& batch) { return (*compiled_)(batch); }
std::int64_t CompiledStep::eager_steps() const { return compiled_->eager; }
std::int64_t CompiledStep::captures() const { return compiled_->captured; }
std::int64_t CompiledStep::replays() const { return compiled_->replayed; }

}  // namespace axle::inline v0::accel
