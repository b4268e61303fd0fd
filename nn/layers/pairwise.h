// Layers of two inputs: Bilinear, CosineSimilarity and PairwiseDistance.
#pragma once

#include <cstdint>

#include "nn/module.h"

namespace axle::nn {

struct BilinearOptions {
    bool bias = true;
};

// The bilinear map y_k = a^T weight_k b + bias_k.
class Bilinear : public Model<Bilinear> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(in1), as
    // PyTorch does. Throws ValueError unless all sizes are positive.
    Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, BilinearOptions options = {});
    // Maps a [..., in1] and b [..., in2] to [..., out]. Throws ShapeError for other shapes.
    Tensor forward(const Tensor& a, const Tensor& b);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [out, in1, in2]
    Tensor bias;    // [out], undefined if there is no bias
};

// The cosine of the angle between a and b along a dimension. Norms below eps count as eps.
class CosineSimilarity : public Model<CosineSimilarity> {
  public:
    explicit CosineSimilarity(std::int64_t dim_ = 1, double eps_ = 1e-8) : dim(dim_), eps(eps_) {}
    // Returns the similarity, which has the shape to which a and b broadcast, without the dimension
    // `dim`. Throws ShapeError if a and b do not broadcast, and IndexError if the dimension does
    // not exist.
    Tensor forward(const Tensor& a, const Tensor& b);
    void visit(Visitor&) override {}

    std::int64_t dim;
    double eps;
};

struct PairwiseDistanceOptions {
    double p = 2;          // at least 0, or infinity
    double eps = 1e-6;     // added to the differences
    bool keepdim = false;  // whether the result keeps the last dimension, with size 1
};

// The p-norm of a - b + eps over the last dimension.
class PairwiseDistance : public Model<PairwiseDistance> {
  public:
    // Throws ValueError if p is negative.
    explicit PairwiseDistance(PairwiseDistanceOptions options = {});
    // Returns the distances [...] of a and b [..., D], which broadcast. The gradient of a distance
    // of zero is zero. Throws ShapeError if a and b do not broadcast.
    Tensor forward(const Tensor& a, const Tensor& b);
    void visit(Visitor&) override {}

    const PairwiseDistanceOptions& options() const { return options_; }

  private:
    PairwiseDistanceOptions options_;
};

}  // namespace axle::nn
