// Private to core: what autograd keeps in a tensor, and the nodes of its graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/autograd/autograd.h"

namespace axle::inline v0::autograd {

// Where an input of a node came from: an output of another node, a leaf, or (both null) nowhere.
struct Edge {
    std::shared_ptr<Node> node;
    int output = 0;
    std::shared_ptr<Impl> leaf;
    Shape shape;
    DType dtype = f32;

    explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

struct Node {
    Node(const char* op_, Rule rule_);
    // Hands its edges and saved tensors to a queue, so that a long chain is freed without
    // recursion.
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    const char* op;
    std::uint64_t sequence;  // of creation: a topological order
    std::vector<Edge> inputs;
    std::vector<std::weak_ptr<Impl>> outputs;
    Rule rule;  // null once freed

    // The backward pass under way.
    std::uint64_t pass = 0;
    int pending = 0;  // in-edges that have not delivered
    Grads dy;
};

struct Meta {
    bool requires_grad = false;
    // of a tensor that an op made
    std::shared_ptr<Node> node;
    int output = 0;
    // of a leaf: undefined where there is none
    Tensor grad;
    std::vector<std::pair<std::uint64_t, std::function<void(const Tensor&)>>> hooks;
    // The backward pass under way.
    std::uint64_t pass = 0;
    int pending = 0;
    Tensor incoming;
};

// Creates it where it is missing.
Meta& meta_of(const Tensor& t);
Edge edge_to(const Tensor& t);

}  // namespace axle::inline v0::autograd
