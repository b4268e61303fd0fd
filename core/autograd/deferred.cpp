#include "core/autograd/deferred.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "core/autograd/autograd_meta.h"

namespace axle::autograd {

extern thread_local std::shared_ptr<Node> running;

namespace {

constinit thread_local GradientQueue* queue = nullptr;
constinit thread_local const Impl* input_leaf = nullptr;

// Returns whether a tensor with this history depends on the leaf `input_leaf`.
bool depends_on_input(const Edge& start) {
    std::vector<const Edge*> open = {&start};
    std::unordered_set<const Node*> seen;
    while (!open.empty()) {
        const Edge& edge = *open.back();
        open.pop_back();
        if (edge.node == nullptr) {
            if (edge.leaf.get() == input_leaf) return true;
        } else if (seen.insert(edge.node.get()).second) {
            for (const Edge& next : edge.node->inputs) open.push_back(&next);
        }
    }
    return false;
}

}  // namespace

GradientQueue::GradientQueue() = default;
GradientQueue::~GradientQueue() = default;
GradientQueue::GradientQueue(GradientQueue&&) noexcept = default;
GradientQueue& GradientQueue::operator=(GradientQueue&&) noexcept = default;

std::size_t GradientQueue::size() const { return entries_.size(); }

void GradientQueue::flush() {
    bytes_ = 0;
    accumulate(std::exchange(entries_, {}));
}

DeferGradients::DeferGradients(GradientQueue& to, const Tensor& input)
    : before_(std::exchange(queue, &to)),
      input_before_(std::exchange(input_leaf, input.defined() ? input.impl().get() : nullptr)) {}
DeferGradients::~DeferGradients() {
    queue = before_;
    input_leaf = input_before_;
}

SuspendDeferral::SuspendDeferral() : before_(std::exchange(queue, nullptr)) {}
SuspendDeferral::~SuspendDeferral() { queue = before_; }

bool is_deferring() { return queue != nullptr; }

bool defer_gradients(std::vector<int> inputs, std::int64_t bytes, std::function<Grads()> compute) {
    if (queue == nullptr || running == nullptr || grad_enabled()) return false;
    if (input_leaf != nullptr)
        for (const int input : inputs)
            if (depends_on_input(running->inputs[static_cast<std::size_t>(input)])) return false;
    DeferredGradient entry{.op = running->op, .edges = {}, .compute = std::move(compute)};
    for (const int input : inputs)
        entry.edges.push_back(running->inputs[static_cast<std::size_t>(input)]);
    queue->entries_.push_back(std::move(entry));
    queue->bytes_ += bytes;
    return true;
}

}  // namespace axle::autograd
