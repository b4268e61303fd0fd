// Gradient rules and inputs of recorded ops. Class templates of the standard library would serve
// too, but their instantiations for several hundred rules cost seconds of compile time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace axle {

// The gradients of a node's outputs or inputs. An undefined Tensor means zero.
using Grads = std::vector<Tensor>;

// The set of inputs that need a gradient, for the first 64 inputs. A rule may leave the gradients
// of inputs that are not in the set undefined.
struct Needs {
    std::uint64_t bits = 0;
    bool operator[](int input) const { return (bits >> input) & 1; }
};

namespace autograd {

// A function rule(dy, needs) that returns the gradients of the inputs, given the gradients of the
// outputs. Rules run with autocast off and are recorded only with create_graph. The shape of a
// gradient can be the broadcast shape, and its floating dtype can differ from the dtype of the
// input; the engine reduces and casts it. A Rule can be moved, but not copied. It can be empty, and
// then must not be called.
class Rule {
  public:
    Rule() = default;
    template <class Function>
        requires(!std::is_same_v<std::decay_t<Function>, Rule>)
    // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
    Rule(Function&& function)
        : function_(new std::decay_t<Function>(std::forward<Function>(function))),
          destroy_([](void* f) { delete static_cast<std::decay_t<Function>*>(f); }),
          call_([](void* f, const Grads& dy, Needs needs) -> Grads {
              return (*static_cast<std::decay_t<Function>*>(f))(dy, needs);
          }) {}

    Rule(Rule&& other) noexcept
        : function_(std::exchange(other.function_, nullptr)),
          destroy_(other.destroy_),
          call_(other.call_) {}
    Rule& operator=(Rule&& other) noexcept {
        std::swap(function_, other.function_);
        std::swap(destroy_, other.destroy_);
        std::swap(call_, other.call_);
        return *this;
    }
    Rule(const Rule&) = delete;
    Rule& operator=(const Rule&) = delete;
    ~Rule() {
        if (function_ != nullptr) destroy_(function_);
    }

    explicit operator bool() const { return function_ != nullptr; }
    Grads operator()(const Grads& dy, Needs needs) const { return call_(function_, dy, needs); }

  private:
    // A std::unique_ptr with a deleter would cost each source that includes this header 7 ms.
    void* function_ = nullptr;
    void (*destroy_)(void* function) = nullptr;
    Grads (*call_)(void* function, const Grads& dy, Needs needs) = nullptr;
};

// A tensor in the list of inputs of record(). Refers to the tensor, which must exist during the
// call.
class Input {
  public:
    Input(const Tensor& tensor) : tensor_(&tensor) {}  // NOLINT(google-explicit-constructor)
    const Tensor& operator*() const { return *tensor_; }
    const Tensor* operator->() const { return tensor_; }

  private:
    const Tensor* tensor_;
};

}  // namespace autograd
}  // namespace axle
