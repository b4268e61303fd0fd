// The formulas of the activations that matrix products can apply (kernels/activation.h).
// unary_formulas.inl explains how this file is included.

// Calls visit with the formula of an activation and returns the result of visit. activation must
// not be Activation::none.
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
