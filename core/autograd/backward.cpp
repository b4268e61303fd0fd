// The backward engine: one pass over the part of a graph that is reachable from its roots.
#include <algorithm>
#include <atomic>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/autograd/accumulation.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/autograd/autograd_meta.h"
#include "core/autograd/deferred.h"
#include "core/autograd/gradient_hooks.h"
#include "core/autograd/hook_list.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle::autograd {

extern thread_local std::shared_ptr<Node> running;

namespace {

// --- hooks around a pass

// Returns the list of hooks. It is never destroyed because handles can outlive main.
auto& begin_hooks() {
    static auto* const list = new HookList<std::function<void(const std::vector<Tensor>&)>>;
    return *list;
}
auto& end_hooks() {
    static auto* const list = new HookList<std::function<void()>>;
    return *list;
}

// --- passes

class Pass {
  public:
    Pass(BackwardOptions options, bool accumulate)
        : options_(options),
          accumulate_(accumulate),
          op_(accumulate ? "backward" : "grad"),
          number_(++passes) {
        options_.retain_graph |= options_.create_graph;
    }
    ~Pass() {
        for (Node* node : nodes_) node->dy.clear();
        for (const std::shared_ptr<Impl>& leaf : leaves_) leaf->autograd->incoming = {};
    }

    // Makes the pass store the gradient of this tensor in captured(slot).
    void capture(const Tensor& t, std::size_t slot) {
        const Edge edge = edge_to(t);
        if (edge.node != nullptr)
            node_captures_[edge.node.get()].emplace_back(edge.output, slot);
        else
            leaf_captures_[t.impl().get()].push_back(slot);
        captured_.resize(std::max(captured_.size(), slot + 1));
    }
    Tensor captured(std::size_t slot) const { return captured_[slot]; }

    void run(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients) {
        std::vector<Edge> starts;
        starts.reserve(roots.size());
        for (const Tensor& root : roots) starts.push_back(edge_to(root));
        count(starts);
        if (detect_anomaly_) check_roots(roots, gradients);
        if (accumulate_) call_begin_hooks();
        for (std::size_t i = 0; i < roots.size(); ++i)
            deliver(starts[i], fit_to_input(op_, gradients[i], starts[i]));
        visit_ready();
        if (accumulate_) call_end_hooks();
    }

    // Computes the deferred gradients in order, and continues the pass from the edges of each
    // gradient.
    void run(std::vector<DeferredGradient>& deferred) {
        std::vector<Edge> starts;
        for (const DeferredGradient& each : deferred)
            starts.insert(starts.end(), each.edges.begin(), each.edges.end());
        count(starts);
        call_begin_hooks();
        for (DeferredGradient& each : deferred) {
            Grads gradients = std::exchange(each.compute, nullptr)();
            for (std::size_t i = 0; i < each.edges.size(); ++i)
                if (const Edge& edge = each.edges[i]) deliver_fitted(each.op, edge, gradients[i]);
            gradients.clear();
            visit_ready();
        }
        call_end_hooks();
    }

  private:
    struct BySequence {
        bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
            return a->sequence < b->sequence;
        }
    };

    // Counts the in-edges of all reachable nodes and leaves. Throws UsageError if a rule was freed.
    void count(const std::vector<Edge>& starts) {
        std::vector<Node*> queue;
        for (const Edge& edge : starts) count_edge(edge, queue);
        while (!queue.empty()) {
            Node* node = queue.back();
            queue.pop_back();
            for (const Edge& edge : node->inputs) count_edge(edge, queue);
        }
    }

    void count_edge(const Edge& edge, std::vector<Node*>& queue) {
        if (edge.node != nullptr) {
            Node* node = edge.node.get();
            if (node->pass != number_) {
                if (!node->rule)
                    throw UsageError(str(op_, ": the graph was freed by an earlier pass (at ",
                                         node->op, "); pass retain_graph to keep it"));
                node->pass = number_;
                node->pending = 0;
                node->dy.assign(node->outputs.size(), Tensor());
                nodes_.push_back(node);
                queue.push_back(node);
            }
            ++node->pending;
        } else if (edge.leaf != nullptr) {
            Meta& meta = *edge.leaf->autograd;
            if (meta.pass != number_) {
                meta.pass = number_;
                meta.pending = 0;
                leaves_.push_back(edge.leaf);
            }
            ++meta.pending;
        }
    }

    void call_begin_hooks() const {
        const auto hooks = begin_hooks().all();
        if (hooks.empty()) return;
        std::vector<Tensor> leaves;
        leaves.reserve(leaves_.size());
        for (const std::shared_ptr<Impl>& leaf : leaves_) leaves.emplace_back(leaf);
        for (const auto& hook : hooks) hook(leaves);
    }
    static void call_end_hooks() {
        for (const auto& hook : end_hooks().all()) hook();
    }

    // Adds the gradient g of one in-edge. g can be undefined.
    void deliver(const Edge& edge, Tensor g) {
        if (edge.node != nullptr) {
            Node& node = *edge.node;
            if (g.defined())
                add_to(node.dy[static_cast<std::size_t>(edge.output)], std::move(g),
                       options_.create_graph);
            if (--node.pending == 0) ready_.push(edge.node);
        } else if (edge.leaf != nullptr) {
            Meta& meta = *edge.leaf->autograd;
            if (g.defined()) add_to(meta.incoming, std::move(g), options_.create_graph);
            if (--meta.pending == 0) finish(edge.leaf);
        }
    }

    void visit(const std::shared_ptr<Node>& node) {
        const profiler::Scope scope(node->op, profiler::Category::backward);
        Grads dy = std::move(node->dy);
        node->dy.clear();
        call_hooks(*node, dy);
        if (const auto found = node_captures_.find(node.get()); found != node_captures_.end())
            for (const auto& [output, slot] : found->second)
                captured_[slot] = dy[static_cast<std::size_t>(output)];
        retain_gradients(*node, dy, options_.create_graph);
        const bool reached =
            std::any_of(dy.begin(), dy.end(), [](const Tensor& g) { return g.defined(); });
        Grads dx(node->inputs.size());
        if (reached) dx = call_rule(node, dy);
        if (reached && detect_anomaly_) check_gradients(*node, dx);
        // If gradients are deferred, a node that no gradient has reached keeps its rule, because a
        // queued gradient can reach the node later.
        if (!options_.retain_graph && (reached || !is_deferring())) {
            // The node's rule is moved to a local variable and freed at the end of this scope,
            // because freeing saved tensors can free adjacent nodes.
            const Rule freed = std::move(node->rule);
        }
        dy.clear();
        for (std::size_t i = 0; i < node->inputs.size(); ++i) {
            const Edge& edge = node->inputs[i];
            if (!edge) continue;
            Tensor none;
            deliver_fitted(node->op, edge, i < dx.size() ? dx[i] : none);
        }
    }

    // Delivers g, which becomes undefined.
    void deliver_fitted(const char* op, const Edge& edge, Tensor& g) {
        deliver(edge, g.defined() ? fit_to_input(op, std::exchange(g, {}), edge) : Tensor());
    }

    void visit_ready() {
        while (!ready_.empty()) {
            const std::shared_ptr<Node> node = ready_.top();
            ready_.pop();
            visit(node);
        }
    }

    Grads call_rule(const std::shared_ptr<Node>& node, const Grads& dy) const {
        Needs needs;
        for (std::size_t i = 0; i < node->inputs.size() && i < 64; ++i)
            if (node->inputs[i]) needs.bits |= std::uint64_t{1} << i;
        struct Running {
            explicit Running(std::shared_ptr<Node> node_) : before(std::move(running)) {
                running = std::move(node_);
            }
            ~Running() { running = std::move(before); }
            std::shared_ptr<Node> before;
        };
        Grads dx;
        {
            const Running scope(node);
            dx = node->rule(dy, needs);
        }
        if (running == nullptr) rule_has_returned();
        return dx;
    }

    // Returns the end of an error message with the op of the forward pass that made NaN first, or
    // "" if this op is unknown.
    std::string origin_of_nan() const {
        const Node* first = nullptr;
        for (const Node* node : nodes_)
            if (node->made_nan && (first == nullptr || node->sequence < first->sequence))
                first = node;
        return first == nullptr ? "" : str("; in the forward pass, ", first->op, " made NaN first");
    }

    void check_roots(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients) const {
        for (std::size_t i = 0; i < roots.size(); ++i) {
            if (has_nan(roots[i]))
                throw NumericsError(str(op_, ": the tensor of shape ", roots[i].shape(),
                                        " to differentiate contains NaN", origin_of_nan()));
            if (has_nan(gradients[i]))
                throw NumericsError(str(op_, ": the gradient argument of shape ",
                                        gradients[i].shape(), " contains NaN"));
        }
    }

    void check_gradients(const Node& node, const Grads& dx) const {
        for (std::size_t i = 0; i < dx.size() && i < node.inputs.size(); ++i)
            if (node.inputs[i] && has_nan(dx[i]))
                throw NumericsError(str(op_, ": ", node.op,
                                        " returned NaN in the gradient of its operand ", i,
                                        " of shape ", node.inputs[i].shape, origin_of_nan()));
    }

    // Stores the leaf's gradient for grad(), or accumulates it and calls the leaf's hooks. Called
    // when the gradient is final.
    void finish(const std::shared_ptr<Impl>& impl) {
        const Tensor leaf(impl);
        Meta& meta = *impl->autograd;
        Tensor g = std::exchange(meta.incoming, {});
        if (g.defined() && !meta.gradient_hooks.empty()) g = call_hooks(meta, std::move(g));
        if (const auto found = leaf_captures_.find(impl.get()); found != leaf_captures_.end())
            for (const std::size_t slot : found->second) captured_[slot] = g;
        if (!accumulate_ || !g.defined()) return;
        accumulate_grad(meta.grad, std::move(g), options_.create_graph);
        // Calls copies of the hooks, because a hook can remove itself or add a hook.
        const auto hooks = meta.hooks;
        for (const auto& [id, hook] : hooks) hook(leaf);
    }

    static inline std::atomic<std::uint64_t> passes = 0;

    BackwardOptions options_;
    bool accumulate_;
    const char* op_;
    bool detect_anomaly_ = is_anomaly_detection_enabled();
    std::uint64_t number_;
    std::vector<Node*> nodes_;
    std::vector<std::shared_ptr<Impl>> leaves_;
    std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, BySequence>
        ready_;
    std::unordered_map<Node*, std::vector<std::pair<int, std::size_t>>> node_captures_;
    std::unordered_map<Impl*, std::vector<std::size_t>> leaf_captures_;
    std::vector<Tensor> captured_;
};

// Returns one gradient per root: the given gradient, or 1 for a root with one element. Throws the
// errors of backward() for invalid arguments. Messages start with op.
std::vector<Tensor> start_gradients(const char* op, const std::vector<Tensor>& roots,
                                    const std::vector<Tensor>& gradients) {
    if (!gradients.empty() && gradients.size() != roots.size())
        throw UsageError(
            str(op, ": needs one gradient for each tensor to differentiate, or no gradients: ",
                roots.size(), " tensors, ", gradients.size(), " gradients"));
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < roots.size(); ++i) {
        const Tensor& root = roots[i];
        if (!root.defined())
            throw UsageError(str(op, ": the tensor to differentiate is undefined: tensor ", i,
                                 " of ", roots.size()));
        if (!root.requires_grad())
            throw UsageError(
                str(op,
                    ": the tensor has no history: it must require a gradient, or be computed "
                    "outside of NoGrad from a tensor that does: shape ",
                    root.shape()));
        const Tensor gradient = i < gradients.size() ? gradients[i] : Tensor();
        if (!gradient.defined() && root.numel() != 1)
            throw UsageError(str(
                op, ": a tensor without exactly one element needs a gradient argument: ", "shape ",
                root.shape()));
        if (gradient.defined() && gradient.shape() != root.shape())
            throw ShapeError(
                str(op, ": shapes differ: gradient ", gradient.shape(), ", tensor ", root.shape()));
        result.push_back(gradient.defined() ? gradient : ones_like(root));
    }
    return result;
}

thread_local int depth = 0;

// Counts the active passes of backward() and accumulate() on this thread.
struct InsidePass {
    InsidePass() { ++depth; }
    ~InsidePass() { --depth; }
    InsidePass(const InsidePass&) = delete;
    InsidePass& operator=(const InsidePass&) = delete;
};

void run_pass(const char* op, Pass& pass, const std::vector<Tensor>& roots,
              const std::vector<Tensor>& gradients, bool create_graph) {
    const GradMode mode(create_graph);
    const AutocastGuard no_autocast(std::nullopt);
    pass.run(roots, start_gradients(op, roots, gradients));
}

}  // namespace

void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients,
              BackwardOptions options) {
    Pass pass(options, true);
    const InsidePass inside;
    run_pass("backward", pass, roots, gradients, options.create_graph);
}

void accumulate(std::vector<DeferredGradient> deferred) {
    Pass pass({}, true);
    const InsidePass inside;
    const NoGrad no_grad;
    const AutocastGuard no_autocast(std::nullopt);
    pass.run(deferred);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, BackwardOptions options) {
    Pass pass(options, false);
    for (std::size_t i = 0; i < inputs.size(); ++i) pass.capture(inputs[i], i);
    const SuspendDeferral no_queue;
    run_pass("grad", pass, outputs, gradients, options.create_graph);
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < inputs.size(); ++i) result.push_back(pass.captured(i));
    return result;
}

HookHandle on_backward_begin(std::function<void(const std::vector<Tensor>&)> hook) {
    return HookHandle(begin_hooks().add(std::move(hook)));
}
int backward_depth() { return depth; }

HookHandle on_backward_end(std::function<void()> hook) {
    return HookHandle(end_hooks().add(std::move(hook)));
}

}  // namespace axle::autograd
