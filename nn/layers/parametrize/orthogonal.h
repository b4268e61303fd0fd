// Orthogonal: layers whose weight is an orthogonal matrix. State dicts have the same names as with
// torch.nn.utils.parametrizations.orthogonal.
//
//     nn::Orthogonal<nn::Linear> layer(nn::Linear(8, 4));
//     Tensor y = layer(x);
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "nn/layers/parametrize/parametrize.h"

namespace axle::nn {

// The map from a parameter to an orthogonal matrix. With the lower triangle L of the parameter and
// A = L - L^T, `matrix_exp` is e^A and `cayley` is (I - A/2)^-1 (I + A/2). `householder` is the
// product of the reflections in the columns of the parameter.
enum class OrthogonalMap : std::uint8_t { matrix_exp, cayley, householder };

struct OrthogonalOptions {
    // The default is matrix_exp for square matrices, and householder for other matrices.
    std::optional<OrthogonalMap> orthogonal_map = {};
    // If true, the result of the map is multiplied by a buffer, so that the weight starts with the
    // orthogonal factor of the layer's weight (Lezcano-Casado, arXiv:1909.09501). Otherwise,
    // householder starts with this factor, too, but matrix_exp and cayley start with the layer's
    // weight as the parameter.
    bool use_trivialization = true;
};

namespace parametrize {

struct OrthogonalWeight {
    OrthogonalMap map = OrthogonalMap::matrix_exp;
    Tensor base;  // undefined without trivialization

    // Returns the first value of the parameter, and sets the map and the base. Throws ShapeError
    // unless the weight has two dimensions or more.
    Tensor start(const Tensor& weight, const OrthogonalOptions& options);
    // Returns the weight for a value of the parameter.
    Tensor weight_of(const Tensor& original) const;
};

}  // namespace parametrize

// A layer whose weight [..., n, k] consists of matrices with orthonormal columns (or rows, if n is
// less than k).
template <class Layer>
class Orthogonal : public Model<Orthogonal<Layer>> {
  public:
    // Throws ShapeError unless the weight has two dimensions or more.
    explicit Orthogonal(Layer layer_, const OrthogonalOptions& options = {})
        : layer(std::move(layer_)) {
        original = parametrize::parameter_of(orthogonal_.start(layer.weight, options));
        layer.weight = layer.weight.detach();
    }
    // Calls the layer with the orthogonal weight.
    template <class... Args>
    auto forward(Args&&... args) {
        return parametrize::call_with(layer, weight(), this->is_training(),
                                      std::forward<Args>(args)...);
    }
    void visit(Visitor& visitor) override {
        parametrize::WithoutWeight others(visitor);
        layer.visit(others);
        visitor("parametrizations.weight.original", original);
        if (orthogonal_.base.defined())
            visitor.buffer("parametrizations.weight.0.base", orthogonal_.base);
        visitor.ignore(layer);
    }
    // Returns the orthogonal weight.
    Tensor weight() const { return orthogonal_.weight_of(original); }

    Layer layer;  // its weight is replaced in every call
    Tensor original;

  private:
    parametrize::OrthogonalWeight orthogonal_;
};

}  // namespace axle::nn
