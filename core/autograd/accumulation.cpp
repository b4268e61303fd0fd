#include "core/autograd/accumulation.h"

#include <utility>

#include "core/ops.h"

namespace axle::autograd {

extern thread_local std::shared_ptr<Node> running;

namespace {

bool exclusively_owned(const Tensor& t) {
    return t.impl().use_count() == 1 && t.impl()->storage.use_count() == 1 && t.is_contiguous();
}

}  // namespace

void add_to(Tensor& sum, Tensor g, bool create_graph) {
    if (!sum.defined())
        sum = std::move(g);
    else if (!create_graph && exclusively_owned(sum) && sum.dtype() == g.dtype())
        sum.add_(g);
    else
        sum = add(sum, g);
}

Tensor* sum_to_extend(int input) {
    if (running == nullptr || grad_enabled() || is_anomaly_detection_enabled()) return nullptr;
    const Edge& edge = running->inputs[static_cast<std::size_t>(input)];
    if (edge.leaf == nullptr) return nullptr;
    Tensor& sum = edge.leaf->autograd->incoming;
    return sum.defined() && exclusively_owned(sum) ? &sum : nullptr;
}

Tensor fit_to_input(const char* op, Tensor g, const Edge& edge) {
    if (g.shape() != edge.shape) {
        if (broadcast_shapes(op, edge.shape, g.shape()) != g.shape())
            throw ShapeError(str(op,
                                 ": the shape of a gradient does not match its input: gradient ",
                                 g.shape(), ", input ", edge.shape));
        g = sum_to(g, edge.shape);
    }
    const DType dtype = edge.leaf != nullptr && is_half(edge.dtype) ? f32 : edge.dtype;
    // Returning g moves it, so that it has a single owner. Only then can a leaf use this gradient
    // without a copy.
    if (g.dtype() == dtype) return g;
    return to(g, dtype);
}

void accumulate_grad(Tensor& grad, Tensor g, bool create_graph) {
    if (!grad.defined())
        grad = exclusively_owned(g) || create_graph ? std::move(g) : clone(g);
    else if (create_graph)
        grad = add(grad, g);
    else
        grad.add_(g);
}

}  // namespace axle::autograd
