#include "accel/capture/compile.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/capture/step_capture.h"
#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#if AXLE_CUDA
#include "core/cuda/graph.h"
#endif

namespace axle::accel {

#if AXLE_CUDA
namespace {

std::vector<Tensor> tensors_of(const Tree& tree) {
    std::vector<Tensor> found;
    for_each_tensor(tree, [&](const Tensor& t) { found.push_back(t); });
    return found;
}

// Returns a string that identifies the batches that one graph can process. Batches that differ only
// in the elements of their tensors have the same string.
std::string kind_of(const Tree& batch) {
    return to_json(map_tensors(batch, [](const Tensor& t) {
        return Tree(str(t.shape(), " ", t.dtype(), " on ", t.device()));
    }));
}

bool same_storage(const Tensor& a, const Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || a.impl()->storage == b.impl()->storage);
}
bool same_storages(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::ranges::equal(a, b, same_storage);
}

}  // namespace

struct CompiledStep::Compiled {
    StepCapture& host;
    std::function<Tensor(Tree&)> step;
    CompileOptions options;
    std::int64_t eager = 0, captured = 0, replayed = 0;
    bool cannot_capture = false;  // whether the function can never be captured

    // A graph for one kind of batch at one position in an update.
    struct Captured {
        std::string kind;
        // The gradients of all parameters before the step; undefined where a parameter had none.
        std::vector<Tensor> gradients_before;
        std::vector<Tensor> gradients_after;
        std::vector<std::shared_ptr<Storage>> memory;
        Tree input;     // the batch that the graph reads
        Tensor output;  // the result that the graph writes
        StepRecord record;
        Graph graph;

        explicit Captured(const GraphPool& pool) : graph(pool) {}
    };
    // The memory of all graphs, which never run at the same time. Graphs pass only gradients to
    // each other through this memory. The gradients are copied if the next graph reads them
    // elsewhere.
    std::optional<GraphPool> pool;
    std::vector<std::unique_ptr<Captured>> graphs;
    std::vector<std::pair<std::string, int>> warmed;  // the number of eager steps of each kind
    // Whether any earlier step consisted of several micro-batches.
    bool of_several = false;
    std::vector<Tensor> parameters;  // parameters of the current step

    Compiled(StepCapture& c, std::function<Tensor(Tree&)> s, CompileOptions o)
        : host(c), step(std::move(s)), options(o) {}

    std::vector<Tensor> gradients() const {
        std::vector<Tensor> all;
        for (const Tensor& p : parameters) all.push_back(p.grad());
        return all;
    }

    std::string full_kind_of(const Tree& batch) const {
        std::string kind = str(host.step_key(of_several), " ", kind_of(batch), " ");
        for (const Tensor& p : parameters) kind += p.requires_grad() ? '1' : '0';
        return kind;
    }

    // Removes all graphs if the storage of parameters, buffers or optimizer state was replaced, for
    // example by loading a checkpoint.
    void drop_invalid_graphs() {
        if (graphs.empty() || graphs.back()->memory == host.memory(parameters)) return;
        graphs.clear();
        warmed.clear();
    }

    // Returns a graph that reads the gradients in their current memory. Otherwise returns a graph
    // to whose memory the gradients can be copied, or nullptr if no graph fits.
    Captured* find(const std::string& kind) {
        const std::vector<Tensor> now = gradients();
        const auto is_defined = [](const Tensor& g) { return g.defined(); };
        Captured* found = nullptr;
        for (const auto& c : graphs) {
            if (c->kind != kind) continue;
            if (same_storages(c->gradients_before, now)) return c.get();
            if (std::ranges::equal(c->gradients_before, now, {}, is_defined, is_defined))
                found = c.get();
        }
        return found;
    }

    // Returns whether a graph captured now could be replayed without copying gradients. This holds
    // if no gradients exist yet, or if another graph has written them to their current memory.
    bool gradients_are_stable() {
        const std::vector<Tensor> now = gradients();
        if (std::ranges::none_of(now, [](const Tensor& g) { return g.defined(); })) return true;
        return std::ranges::any_of(
            graphs, [&](const auto& c) { return same_storages(c->gradients_after, now); });
    }

    // Returns whether `steps` eager steps of a kind are enough to capture a graph. A step that
    // begins with gradients is captured later than other steps, so that the graph that writes these
    // gradients can be captured first. The delay is limited, because no such graph exists if each
    // step begins with zero_grad().
    bool is_warm(int steps) {
        if (steps < options.warmup_steps) return false;
        return gradients_are_stable() ||
               steps >= 2 * options.warmup_steps * host.accumulation_steps();
    }

    int& warmed_by(const std::string& kind) {
        for (auto& [known, count] : warmed)
            if (known == kind) return count;
        return warmed.emplace_back(kind, 0).second;
    }

    Tensor run(Tree& batch) {
        const std::int64_t before = host.micro_batches();
        const Tensor y = step(batch);
        of_several |= host.micro_batches() - before > 1;
        return y.defined() ? y.detach() : y;
    }

    // Captures the step, replays it once and returns its result. If the capture fails, restores the
    // state and returns nullopt. Also returns nullopt if the step must run eagerly (can_replay()).
    std::optional<Tensor> capture(const std::string& kind, const Tree& batch) {
        if (!pool) pool.emplace(host.device().index);
        auto c = std::make_unique<Captured>(*pool);
        c->kind = kind;
        c->gradients_before = gradients();
        {
            const NoGrad no_grad;
            c->input = map_tensors(batch, [](const Tensor& t) { return Tree(clone(t.detach())); });
        }
        const StepCapture::Snapshot before = host.snapshot();
        host.begin_recording(c->record);
        try {
            Tree input = c->input;
            GraphCapture scope(c->graph);
            c->output = run(input);
            scope.end();
            host.end_recording(c->record);
        } catch (const std::exception& error) {
            give_up(*c, before, error.what());
            return std::nullopt;
        } catch (...) {
            give_up(*c, before, "an exception of an unknown type");
            return std::nullopt;
        }
        c->gradients_after = gradients();
        c->memory = host.memory(parameters);
        host.rewind_counts(before);
        set_gradients(c->gradients_before);
        graphs.push_back(std::move(c));
        ++captured;
        return launch(*graphs.back());
    }

    void give_up(Captured& c, const StepCapture::Snapshot& before, const char* why) {
        host.end_recording(c.record);
        host.rewind(before);
        set_gradients(c.gradients_before);
        cannot_capture = true;
        warn(why);
    }

    static void warn(const char* why) {
        log(LogLevel::warning,
            "compile: the step can't be captured in a graph and runs eagerly: ", why);
    }

    void set_gradients(const std::vector<Tensor>& gradients) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            if (gradients[i].defined())
                parameters[i].set_grad(gradients[i]);
            else
                parameters[i].zero_grad();
        }
    }

    // Replays a graph and returns its result, or nullopt if the step must run eagerly.
    std::optional<Tensor> launch(Captured& c) {
        if (!host.can_replay(c.record)) return std::nullopt;
        host.before_replay(c.record);
        c.graph.replay();
        host.after_replay(c.record, parameters);
        set_gradients(c.gradients_after);
        const NoGrad no_grad;
        return c.output.defined() ? clone(c.output) : Tensor();
    }

    std::optional<Tensor> replay(Captured& c, const Tree& batch) {
        const profiler::Scope scope("replay", profiler::Category::optimizer);
        {
            const NoGrad no_grad;
            const std::vector<Tensor> from = tensors_of(batch);
            std::vector<Tensor> to = tensors_of(c.input);
            for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
            const std::vector<Tensor> now = gradients();
            for (std::size_t i = 0; i < now.size(); ++i)
                if (!same_storage(c.gradients_before[i], now[i]))
                    c.gradients_before[i].copy_(now[i]);
        }
        std::optional<Tensor> y = launch(c);
        if (y) ++replayed;
        return y;
    }

    std::optional<Tensor> as_graph(const std::string& kind, const Tree& batch) {
        if (Captured* const c = find(kind)) return replay(*c, batch);
        int& count = warmed_by(kind);
        std::optional<Tensor> y;
        if (is_warm(count)) y = capture(kind, batch);
        if (!y) ++count;
        return y;
    }

    Tensor operator()(Tree& batch) {
        if (!host.device().is_cuda() || cannot_capture) {
            ++eager;
            return run(batch);
        }
        parameters = host.parameters();
        if (std::ranges::any_of(parameters, autograd::is_sharded)) {
            cannot_capture = true;
            warn("parameters are sharded over processes");
            ++eager;
            return run(batch);
        }
        drop_invalid_graphs();
        const std::string kind = full_kind_of(batch);
        if (std::optional<Tensor> y = as_graph(kind, batch)) return *y;
        ++eager;
        return run(batch);
    }
};
#else
struct CompiledStep::Compiled {
    std::function<Tensor(Tree&)> step;
    std::int64_t eager = 0, captured = 0, replayed = 0;

    Compiled(StepCapture&, std::function<Tensor(Tree&)> s, CompileOptions) : step(std::move(s)) {}

    Tensor operator()(Tree& batch) {
        ++eager;
        const Tensor y = step(batch);
        return y.defined() ? y.detach() : y;
    }
};
#endif

CompiledStep::CompiledStep(StepCapture& capture, std::function<Tensor(Tree&)> step,
                           CompileOptions options)
    : compiled_(make_owning<Compiled>(capture, std::move(step), options)) {
    if (options.warmup_steps < 1)
        throw ValueError(str("compile: warmup_steps must be at least 1: ", options.warmup_steps));
}
CompiledStep::~CompiledStep() = default;
CompiledStep::CompiledStep(CompiledStep&&) noexcept = default;
CompiledStep& CompiledStep::operator=(CompiledStep&&) noexcept = default;

Tensor CompiledStep::operator()(Tree& batch) { return (*compiled_)(batch); }
std::int64_t CompiledStep::eager_steps() const { return compiled_->eager; }
std::int64_t CompiledStep::captures() const { return compiled_->captured; }
std::int64_t CompiledStep::replays() const { return compiled_->replayed; }

}  // namespace axle::accel
