// Layers whose weight is computed from other parameters: WeightNorm and SpectralNorm. State dicts
// have the same names as with torch.nn.utils.parametrizations.
//
//     nn::WeightNorm<nn::Linear> layer(nn::Linear(8, 4));
//     Tensor y = layer(x);
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "nn/module.h"

namespace axle::nn {

namespace parametrize {

// Passes the members of a layer to another visitor, except for the parameter "weight".
class WithoutWeight : public Visitor {
  public:
    explicit WithoutWeight(Visitor& to) : to_(to) {}

  protected:
    void on_parameter(std::string_view name, Tensor& parameter) override {
        if (name != "weight") to_(name, parameter);
    }
    void on_buffer(std::string_view name, Tensor& buffer, BufferOptions options) override {
        to_.buffer(name, buffer, options);
    }
    void on_child(std::string_view name, Module& child) override { to_(name, child); }
    void on_ignored(Module& child) override { to_.ignore(child); }
    void on_ignored_tensor(Tensor& tensor) override { to_.ignore(tensor); }

  private:
    Visitor& to_;
};

// Calls the layer with a weight, in training mode if `training` is true. The layer then keeps the
// values of the weight, detached from the graph.
template <class Layer, class... Args>
auto call_with(Layer& layer, const Tensor& weight, bool training, Args&&... args) {
    struct Detach {
        Tensor& weight;
        ~Detach() { weight = weight.detach(); }
    };
    layer.train(training);
    layer.weight = weight;
    const Detach detach{layer.weight};
    return layer(std::forward<Args>(args)...);
}

// Returns the norms of the parts of x along dim, with the other dimensions of size 1. If dim is -1,
// returns the norm of x, without dimensions.
Tensor norm_except(const Tensor& x, std::int64_t dim);
// Returns a parameter with the values of x.
Tensor parameter_of(const Tensor& x);
// Throws IndexError unless dim is -1 or a dimension of the weight. The message begins with `who`.
void check_dim(const char* who, std::int64_t dim, const Tensor& weight);

// The vectors of the power iteration for the matrix of a weight. The rows of the matrix are the
// parts of the weight along `dim`.
struct PowerIteration {
    Tensor u, v;  // [rows] and [columns], of norm 1
    std::int64_t dim = 0;
    double eps = 1e-12;

    // Sets u and v to random vectors and runs 15 iterations.
    void start(const Tensor& weight);
    // Replaces u and v by the vectors after more iterations.
    void run(const Tensor& weight, std::int64_t iterations);
    // Returns the weight divided by the estimate u^T W v of its largest singular value.
    Tensor normalized(const Tensor& weight) const;
};

}  // namespace parametrize

// A layer with weight = g v / |v| (Salimans and Kingma, arXiv:1602.07868). g and v are parameters,
// and the norm is computed for each index of a dimension.
template <class Layer>
class WeightNorm : public Model<WeightNorm<Layer>> {
  public:
    // The layer's weight keeps its values. If dim is -1, there is one norm for the whole weight.
    // Throws IndexError if the weight does not have the dimension.
    explicit WeightNorm(Layer layer_, std::int64_t dim = 0) : layer(std::move(layer_)), dim_(dim) {
        parametrize::check_dim("WeightNorm", dim, layer.weight);
        g = parametrize::parameter_of(parametrize::norm_except(layer.weight, dim));
        v = parametrize::parameter_of(layer.weight);
        layer.weight = layer.weight.detach();
    }
    // Calls the layer with weight().
    template <class... Args>
    auto forward(Args&&... args) {
        return parametrize::call_with(layer, weight(), this->is_training(),
                                      std::forward<Args>(args)...);
    }
    void visit(Visitor& visitor) override {
        parametrize::WithoutWeight others(visitor);
        layer.visit(others);
        visitor("parametrizations.weight.original0", g);
        visitor("parametrizations.weight.original1", v);
        visitor.ignore(layer);
    }
    // Returns the weight g v / |v|.
    Tensor weight() const { return v * (g / parametrize::norm_except(v, dim_)); }

    Layer layer;  // its weight is replaced in every call
    Tensor g, v;

  private:
    std::int64_t dim_;
};

struct SpectralNormOptions {
    std::int64_t n_power_iterations = 1;  // in each call in training mode
    double eps = 1e-12;                   // lower bound of the norms by which the iterations divide
    // The dimension of the outputs: 0, or 1 for transposed convolutions. Must not be negative.
    std::int64_t dim = 0;
};

// A layer whose weight is divided by its largest singular value, which power iterations estimate
// (Miyato et al., arXiv:1802.05957).
template <class Layer>
class SpectralNorm : public Model<SpectralNorm<Layer>> {
  public:
    // Throws IndexError if the weight does not have the dimension, and ValueError unless
    // n_power_iterations is positive.
    explicit SpectralNorm(Layer layer_, SpectralNormOptions options = {})
        : layer(std::move(layer_)), iterations_(options.n_power_iterations) {
        if (options.dim < 0)
            throw IndexError(str("SpectralNorm: dim must not be negative: ", options.dim));
        parametrize::check_dim("SpectralNorm", options.dim, layer.weight);
        if (iterations_ < 1)
            throw ValueError(
                str("SpectralNorm: n_power_iterations must be positive: ", iterations_));
        original = parametrize::parameter_of(layer.weight);
        power_.dim = options.dim, power_.eps = options.eps;
        power_.start(original);
        layer.weight = layer.weight.detach();
    }
    // Calls the layer with the normalized weight. In training mode, first runs n_power_iterations
    // power iterations.
    template <class... Args>
    auto forward(Args&&... args) {
        if (this->is_training()) power_.run(original, iterations_);
        return parametrize::call_with(layer, weight(), this->is_training(),
                                      std::forward<Args>(args)...);
    }
    void visit(Visitor& visitor) override {
        parametrize::WithoutWeight others(visitor);
        layer.visit(others);
        visitor("parametrizations.weight.original", original);
        visitor.buffer("parametrizations.weight.0._u", power_.u);
        visitor.buffer("parametrizations.weight.0._v", power_.v);
        visitor.ignore(layer);
    }
    // Returns the normalized weight.
    Tensor weight() const { return power_.normalized(original); }

    Layer layer;  // its weight is replaced in every call
    Tensor original;

  private:
    parametrize::PowerIteration power_;
    std::int64_t iterations_;
};

}  // namespace axle::nn
