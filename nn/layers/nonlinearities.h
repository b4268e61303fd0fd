// Activation modules with PyTorch's names and defaults, except that Softmax and LogSoftmax use the
// last dimension by default. Each, except Identity, calls the op of the same name in
// core/elementwise.h, core/functional.h or core/ops.h, which document the functions and their
// errors. The common activations are in nn/layers/activation.h.
#pragma once

#include <cstdint>

#include "nn/module.h"

namespace axle::nn {

class LeakyReLU : public Model<LeakyReLU> {
  public:
    explicit LeakyReLU(double negative_slope_ = 0.01) : negative_slope(negative_slope_) {}
    Tensor forward(const Tensor& x) { return leaky_relu(x, negative_slope); }
    void visit(Visitor&) override {}

    double negative_slope;
};

class ELU : public Model<ELU> {
  public:
    explicit ELU(double alpha_ = 1) : alpha(alpha_) {}
    Tensor forward(const Tensor& x) { return elu(x, alpha); }
    void visit(Visitor&) override {}

    double alpha;
};

class SELU : public Model<SELU> {
  public:
    Tensor forward(const Tensor& x) { return selu(x); }
    void visit(Visitor&) override {}
};

class CELU : public Model<CELU> {
  public:
    explicit CELU(double alpha_ = 1) : alpha(alpha_) {}
    Tensor forward(const Tensor& x) { return celu(x, alpha); }
    void visit(Visitor&) override {}

    double alpha;
};

class Softplus : public Model<Softplus> {
  public:
    explicit Softplus(double beta_ = 1, double threshold_ = 20)
        : beta(beta_), threshold(threshold_) {}
    Tensor forward(const Tensor& x) { return softplus(x, beta, threshold); }
    void visit(Visitor&) override {}

    double beta, threshold;
};

class LogSigmoid : public Model<LogSigmoid> {
  public:
    Tensor forward(const Tensor& x) { return logsigmoid(x); }
    void visit(Visitor&) override {}
};

class Softsign : public Model<Softsign> {
  public:
    Tensor forward(const Tensor& x) { return softsign(x); }
    void visit(Visitor&) override {}
};

class Mish : public Model<Mish> {
  public:
    Tensor forward(const Tensor& x) { return mish(x); }
    void visit(Visitor&) override {}
};

class Hardswish : public Model<Hardswish> {
  public:
    Tensor forward(const Tensor& x) { return hardswish(x); }
    void visit(Visitor&) override {}
};

class Hardsigmoid : public Model<Hardsigmoid> {
  public:
    Tensor forward(const Tensor& x) { return hardsigmoid(x); }
    void visit(Visitor&) override {}
};

class Hardtanh : public Model<Hardtanh> {
  public:
    explicit Hardtanh(double low_ = -1, double high_ = 1) : low(low_), high(high_) {}
    Tensor forward(const Tensor& x) { return hardtanh(x, low, high); }
    void visit(Visitor&) override {}

    double low, high;
};

class ReLU6 : public Model<ReLU6> {
  public:
    Tensor forward(const Tensor& x) { return relu6(x); }
    void visit(Visitor&) override {}
};

class Hardshrink : public Model<Hardshrink> {
  public:
    explicit Hardshrink(double lambda_ = 0.5) : lambda(lambda_) {}
    Tensor forward(const Tensor& x) { return hardshrink(x, lambda); }
    void visit(Visitor&) override {}

    double lambda;
};

class Softshrink : public Model<Softshrink> {
  public:
    explicit Softshrink(double lambda_ = 0.5) : lambda(lambda_) {}
    Tensor forward(const Tensor& x) { return softshrink(x, lambda); }
    void visit(Visitor&) override {}

    double lambda;
};

class Tanhshrink : public Model<Tanhshrink> {
  public:
    Tensor forward(const Tensor& x) { return tanhshrink(x); }
    void visit(Visitor&) override {}
};

class Threshold : public Model<Threshold> {
  public:
    Threshold(double threshold_, double value_) : threshold(threshold_), value(value_) {}
    Tensor forward(const Tensor& x) { return axle::threshold(x, threshold, value); }
    void visit(Visitor&) override {}

    double threshold, value;
};

// The leaky ReLU with a slope that is learned, for all channels or for each channel.
class PReLU : public Model<PReLU> {
  public:
    // Throws ValueError unless num_parameters is positive.
    explicit PReLU(std::int64_t num_parameters = 1, double init = 0.25);
    Tensor forward(const Tensor& x) { return prelu(x, weight); }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;  // [num_parameters]
};

class GLU : public Model<GLU> {
  public:
    explicit GLU(std::int64_t dim_ = -1) : dim(dim_) {}
    Tensor forward(const Tensor& x) { return glu(x, dim); }
    void visit(Visitor&) override {}

    std::int64_t dim;
};

class Softmax : public Model<Softmax> {
  public:
    explicit Softmax(std::int64_t dim_ = -1) : dim(dim_) {}
    Tensor forward(const Tensor& x) { return softmax(x, dim); }
    void visit(Visitor&) override {}

    std::int64_t dim;
};

class LogSoftmax : public Model<LogSoftmax> {
  public:
    explicit LogSoftmax(std::int64_t dim_ = -1) : dim(dim_) {}
    Tensor forward(const Tensor& x) { return log_softmax(x, dim); }
    void visit(Visitor&) override {}

    std::int64_t dim;
};

// Returns its input.
class Identity : public Model<Identity> {
  public:
    Tensor forward(const Tensor& x) { return x; }
    void visit(Visitor&) override {}
};

}  // namespace axle::nn
