#include "nn/layers/nonlinearities.h"

#include "nn/layers/activation.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;

TEST(ActivationLayers, MatchTheirFunctions) {
    const Tensor x = randn({3, 5, 2});
    expect_same_bits(nn::ReLU()(x), relu(x));
    expect_same_bits(nn::GELU()(x), gelu(x));
    expect_same_bits(nn::GELU(Gelu::tanh)(x), gelu(x, Gelu::tanh));
    expect_same_bits(nn::SiLU()(x), silu(x));
    expect_same_bits(nn::Tanh()(x), tanh(x));
    expect_same_bits(nn::Sigmoid()(x), sigmoid(x));
}

TEST(ActivationLayers, MatchFunctionsThatHaveNoOptions) {
    const Tensor x = 4.0 * randn({3, 6, 2});
    expect_same_bits(nn::SELU()(x), selu(x));
    expect_same_bits(nn::LogSigmoid()(x), logsigmoid(x));
    expect_same_bits(nn::Softsign()(x), softsign(x));
    expect_same_bits(nn::Mish()(x), mish(x));
    expect_same_bits(nn::Hardswish()(x), hardswish(x));
    expect_same_bits(nn::Hardsigmoid()(x), hardsigmoid(x));
    expect_same_bits(nn::ReLU6()(x), relu6(x));
    expect_same_bits(nn::Tanhshrink()(x), tanhshrink(x));
    expect_same_bits(nn::Identity()(x), x);
}

TEST(ActivationLayers, ApplyTheirOptions) {
    const Tensor x = 4.0 * randn({3, 6, 2});
    expect_same_bits(nn::LeakyReLU(0.2)(x), leaky_relu(x, 0.2));
    expect_same_bits(nn::ELU(2)(x), elu(x, 2));
    expect_same_bits(nn::CELU(2)(x), celu(x, 2));
    expect_same_bits(nn::Softplus(2, 3)(x), softplus(x, 2, 3));
    expect_same_bits(nn::Hardtanh(-2, 3)(x), hardtanh(x, -2, 3));
    expect_same_bits(nn::Hardshrink(1.5)(x), hardshrink(x, 1.5));
    expect_same_bits(nn::Softshrink(1.5)(x), softshrink(x, 1.5));
    expect_same_bits(nn::Threshold(1, -2)(x), threshold(x, 1, -2));
    expect_same_bits(nn::GLU(1)(x), glu(x, 1));
    expect_same_bits(nn::Softmax(1)(x), softmax(x, 1));
    expect_same_bits(nn::LogSoftmax(1)(x), log_softmax(x, 1));
}

TEST(PReLU, LearnsTheSlopeOfEachChannelAndRejectsZeroChannels) {
    nn::PReLU layer(3, 0.5);
    const Tensor x = -1.0 * ones({2, 3, 4});
    const Tensor y = layer(x);
    expect_same_bits(y.detach(), full({2, 3, 4}, -0.5));
    sum(y).backward();
    expect_same_bits(layer.weight.grad(), full({3}, -8.0));
    EXPECT_EQ(layer.state_dict().at(0).first, "weight");
    expect_error<ValueError>({"PReLU: num_parameters must be positive: 0"}, [] { nn::PReLU(0); });
}

}  // namespace
}  // namespace axle
