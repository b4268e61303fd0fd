// The formulas of the activations that products can apply (kernels/activation.h); see
// unary_formulas.inl for how this file is included.

// Calls visit with the formula of an activation and returns its result. activation must not be
// none.
template <class Visit>
AXLE_HOST_DEVICE decltype(auto) visit_activation(Activation activation, Visit&& visit) {
    switch (activation) {
        case Activation::relu:
            return visit(Relu());
        case Activation::gelu:
            return visit(Gelu());
        case Activation::gelu_tanh:
            return visit(GeluTanh());
        default:
            return visit(Silu());
    }
}
