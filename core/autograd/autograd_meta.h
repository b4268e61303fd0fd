// Private to core: the autograd data of a tensor, and the graph's nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/autograd/tensor_slice.h"

namespace axle::autograd {

struct Node;

// The origin of a node's input: an output of another node, a leaf, or neither (both pointers null).
struct Edge {
    std::shared_ptr<Node> node;
    int output = 0;
    std::shared_ptr<Impl> leaf;
    Shape shape;
    DType dtype = f32;

    explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

// A hook of a tensor (register_hook), and the index of the tensor among the outputs of its node,
// which is 0 for a leaf.
struct TensorHook {
    std::uint64_t id;
    int output;
    GradientHook call;
};
using TensorHooks = std::vector<TensorHook>;

struct Node {
    Node(const char* op_, Rule rule_);
    // Moves the node's edges and saved tensors to a queue, so that a long chain of nodes is freed
    // without recursion.
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    const char* op;
    std::uint64_t sequence;  // creation order, which is a topological order
    std::vector<Edge> inputs;
    std::vector<std::weak_ptr<Impl>> outputs;
    Rule rule;  // null after it was freed
    TensorHooks hooks;
    // The outputs for which retain_grad() was called: index and tensor.
    std::vector<std::pair<int, std::weak_ptr<Impl>>> retained;
    // Whether an output contains NaN although no input does. Set only while anomaly detection is
    // on.
    bool made_nan = false;

    // The state of the node in the current backward pass.
    std::uint64_t pass = 0;
    int pending = 0;  // number of in-edges that have not delivered a gradient yet
    Grads dy;
};

struct Meta {
    bool requires_grad = false;
    // Whether the tensor is in the registry of leaves (leaf_registry.h): true for a leaf that
    // requires a gradient.
    bool is_registered = false;
    // The node that computed the tensor (null for a leaf), and the index of the tensor among its
    // outputs.
    std::shared_ptr<Node> node;
    int output = 0;
    bool retains_grad = false;  // whether retain_grad() was called; false for a leaf
    Tensor grad;                // undefined if there is no gradient
    // The following members are used by leaves only.
    TensorHooks gradient_hooks;
    // The local part of the leaf (core/autograd/local_part.h). Undefined unless the leaf is
    // sharded.
    Tensor local_part;
    std::int64_t local_begin = 0;
    // The slice of the leaf (core/autograd/tensor_slice.h). Null unless the leaf is a slice.
    std::shared_ptr<const TensorSlice> slice;
    std::vector<std::pair<std::uint64_t, std::function<void(const Tensor&)>>> hooks;
    // The state of the leaf in the current backward pass.
    std::uint64_t pass = 0;
    int pending = 0;
    Tensor incoming;
};

// A queued computation of the gradients of some edges (deferred.h). Gradients of edges without a
// node or leaf are ignored.
struct DeferredGradient {
    const char* op;
    std::vector<Edge> edges;
    std::function<Grads()> compute;
};
// Computes the gradients and accumulates them in the leaves, in one pass.
void accumulate(std::vector<DeferredGradient> deferred);

// Calls the functions given to run_after_rule() (local_part.h). Called when no rule runs on this
// thread.
void rule_has_returned();

// Returns the tensor's Meta; creates it if it is missing.
Meta& meta_of(const Tensor& t);
Edge edge_to(const Tensor& t);
// Returns whether x has a floating dtype and an element that is NaN. Waits for a GPU.
bool has_nan(const Tensor& x);

}  // namespace axle::autograd
