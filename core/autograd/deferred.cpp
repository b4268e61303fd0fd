#include "core/autograd/deferred.h"

#include <utility>

#include "core/autograd/autograd_meta.h"

namespace axle::autograd {

extern thread_local std::shared_ptr<Node> running;

namespace {
constinit thread_local GradientQueue* queue = nullptr;
}

GradientQueue::GradientQueue() = default;
GradientQueue::~GradientQueue() = default;
GradientQueue::GradientQueue(GradientQueue&&) noexcept = default;
GradientQueue& GradientQueue::operator=(GradientQueue&&) noexcept = default;

std::size_t GradientQueue::size() const { return entries_.size(); }

void GradientQueue::flush() {
    bytes_ = 0;
    accumulate(std::exchange(entries_, {}));
}

DeferGradients::DeferGradients(GradientQueue& to) : before_(std::exchange(queue, &to)) {}
DeferGradients::~DeferGradients() { queue = before_; }

bool is_deferring() { return queue != nullptr; }

bool defer_gradients(std::vector<int> inputs, std::int64_t bytes, std::function<Grads()> compute) {
    if (queue == nullptr || running == nullptr || grad_enabled()) return false;
    DeferredGradient entry{.op = running->op, .edges = {}, .compute = std::move(compute)};
    for (const int input : inputs)
        entry.edges.push_back(running->inputs[static_cast<std::size_t>(input)]);
    queue->entries_.push_back(std::move(entry));
    queue->bytes_ += bytes;
    return true;
}

}  // namespace axle::autograd
