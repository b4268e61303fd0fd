#include "core/autograd/forward_context.h"

#include <utility>

namespace axle {
namespace {

thread_local std::shared_ptr<ForwardContext> thread_context;

}  // namespace

const std::shared_ptr<ForwardContext>& forward_context() { return thread_context; }

ForwardContextGuard::ForwardContextGuard(std::shared_ptr<ForwardContext> context)
    : before_(std::exchange(thread_context, std::move(context))) {}

ForwardContextGuard::~ForwardContextGuard() { thread_context = std::move(before_); }

}  // namespace axle
