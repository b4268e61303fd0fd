// Tests densities, entropies, moments and divergences against PyTorch, samples against the
// distribution functions, and errors.
#include "core/distributions/distributions.h"

#include <cmath>
#include <limits>
#include <map>

#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "core/linalg.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "tests/close.h"

namespace axle::distributions {
namespace {

using tests::expect_close;
using tests::expect_error;
using Parameters = const std::vector<Tensor>&;

// PyTorch's second derivative of lgamma has an error of 1e-9.
constexpr double kPyTorchTolerance = 1e-8;

const Tensor& recorded(const std::string& name) {
    static const auto file =
        load_safetensors(AXLE_TESTS_DIR "/golden/distributions.safetensors").tensors;
    const auto found = file.find(name);
    static const Tensor none;
    return found == file.end() ? none : found->second;
}

std::vector<Tensor> parameters(const std::string& name) {
    std::vector<Tensor> p;
    for (int i = 0; recorded(str(name, ".p", i)).defined(); ++i)
        p.push_back(clone(recorded(str(name, ".p", i))).set_requires_grad());
    return p;
}

// Compares y, and the gradients of the leaves, with the recorded values.
void expect_recorded(const std::string& name, const Tensor& y,
                     const std::map<std::string, Tensor>& leaves) {
    SCOPED_TRACE(name);
    expect_close(y.detach(), recorded(name + ".out"), kPyTorchTolerance);
    const Tensor& factor = recorded(name + ".factor");
    if (!factor.defined()) return;
    for (const auto& [key, leaf] : leaves) leaf.zero_grad();
    if (y.requires_grad()) y.backward(factor, true);
    for (const auto& [key, leaf] : leaves) {
        SCOPED_TRACE(key);
        const Tensor grad = leaf.grad().defined() ? leaf.grad() : zeros_like(leaf).detach();
        expect_close(grad, recorded(name + ".grad_" + key), kPyTorchTolerance);
    }
}

template <class Make>
void expect_distribution(const std::string& name, const Make& make) {
    const std::vector<Tensor> p = parameters(name);
    const auto distribution = make(p);
    std::map<std::string, Tensor> leaves;
    for (std::size_t i = 0; i < p.size(); ++i) leaves[str("p", i)] = p[i];
    expect_recorded(name + ".entropy", distribution.entropy(), leaves);
    expect_recorded(name + ".mean", distribution.mean(), leaves);
    expect_recorded(name + ".variance", distribution.variance(), leaves);
    Tensor value = clone(recorded(name + ".value"));
    if (is_floating(value.dtype())) leaves["value"] = value.set_requires_grad();
    expect_recorded(name + ".log_prob", distribution.log_prob(value), leaves);
    Shape shape = {2, 1};
    for (const std::int64_t n : distribution.batch_shape()) shape.push_back(n);
    for (const std::int64_t n : distribution.event_shape()) shape.push_back(n);
    const Tensor sample = distribution.sample({2, 1});
    EXPECT_EQ(sample.shape(), shape);
    EXPECT_FALSE(sample.requires_grad());
    EXPECT_EQ(distribution.log_prob(sample).dim(), 2 + distribution.batch_shape().size());
    if (!distribution.has_rsample()) {
        expect_error<UsageError>({"", "discrete"}, [&] { distribution.rsample(); });
        return;
    }
    const Tensor y = distribution.rsample({2, 1});
    EXPECT_EQ(y.shape(), shape);
    for (const Tensor& t : p) t.zero_grad();
    sum(y).backward();
    for (const Tensor& t : p) EXPECT_TRUE(t.grad().defined());
}

Tensor symmetric(const Tensor& x) { return div(add(x, transpose(x, -2, -1)), 2); }

TEST(Distributions, HaveDensitiesEntropiesAndMomentsThatMatchPyTorch) {
    expect_distribution("normal", [](Parameters p) { return Normal(p[0], p[1]); });
    expect_distribution("log_normal", [](Parameters p) { return LogNormal(p[0], p[1]); });
    expect_distribution("categorical_probs",
                        [](Parameters p) { return Categorical({.probs = p[0]}); });
    expect_distribution("categorical_logits",
                        [](Parameters p) { return Categorical({.logits = p[0]}); });
    expect_distribution("bernoulli_probs", [](Parameters p) { return Bernoulli({.probs = p[0]}); });
    expect_distribution("bernoulli_logits",
                        [](Parameters p) { return Bernoulli({.logits = p[0]}); });
    expect_distribution("uniform", [](Parameters p) { return Uniform(p[0], p[1]); });
    expect_distribution("exponential", [](Parameters p) { return Exponential(p[0]); });
    expect_distribution("laplace", [](Parameters p) { return Laplace(p[0], p[1]); });
    expect_distribution("gamma", [](Parameters p) { return Gamma(p[0], p[1]); });
    expect_distribution("beta", [](Parameters p) { return Beta(p[0], p[1]); });
    expect_distribution("dirichlet", [](Parameters p) { return Dirichlet(p[0]); });
    expect_distribution("independent",
                        [](Parameters p) { return Independent(Normal(p[0], p[1]), 1); });
    expect_distribution("multivariate_normal_covariance", [](Parameters p) {
        return MultivariateNormal(p[0], {.covariance_matrix = symmetric(p[1])});
    });
    expect_distribution("multivariate_normal_precision", [](Parameters p) {
        return MultivariateNormal(p[0], {.precision_matrix = symmetric(p[1])});
    });
    expect_distribution("multivariate_normal_tril", [](Parameters p) {
        return MultivariateNormal(p[0], {.scale_tril = p[1]});
    });
}

template <class Divergence>
void expect_divergence(const std::string& name, const Divergence& divergence) {
    const std::vector<Tensor> p = parameters("kl." + name);
    std::map<std::string, Tensor> leaves;
    for (std::size_t i = 0; i < p.size(); ++i) leaves[str("p", i)] = p[i];
    expect_recorded("kl." + name, divergence(p), leaves);
}

TEST(Distributions, HaveDivergencesThatMatchPyTorch) {
    expect_divergence("normal", [](Parameters p) {
        return kl_divergence(Normal(p[0], p[1]), Normal(p[2], p[3]));
    });
    expect_divergence("log_normal", [](Parameters p) {
        return kl_divergence(LogNormal(p[0], p[1]), LogNormal(p[2], p[3]));
    });
    expect_divergence("categorical", [](Parameters p) {
        return kl_divergence(Categorical({.probs = p[0]}), Categorical({.logits = p[1]}));
    });
    expect_divergence("categorical_zeros", [](Parameters p) {
        return kl_divergence(Categorical({.probs = p[0]}), Categorical({.probs = p[1]}));
    });
    expect_divergence("bernoulli", [](Parameters p) {
        return kl_divergence(Bernoulli({.probs = p[0]}), Bernoulli({.logits = p[1]}));
    });
    for (const char* name : {"uniform", "uniform_outside"})
        expect_divergence(name, [](Parameters p) {
            return kl_divergence(Uniform(p[0], p[1]), Uniform(p[2], p[3]));
        });
    expect_divergence("exponential", [](Parameters p) {
        return kl_divergence(Exponential(p[0]), Exponential(p[1]));
    });
    expect_divergence(
        "gamma", [](Parameters p) { return kl_divergence(Gamma(p[0], p[1]), Gamma(p[2], p[3])); });
    expect_divergence(
        "beta", [](Parameters p) { return kl_divergence(Beta(p[0], p[1]), Beta(p[2], p[3])); });
    expect_divergence("dirichlet",
                      [](Parameters p) { return kl_divergence(Dirichlet(p[0]), Dirichlet(p[1])); });
    expect_divergence("laplace", [](Parameters p) {
        return kl_divergence(Laplace(p[0], p[1]), Laplace(p[2], p[3]));
    });
    expect_divergence("normal_laplace", [](Parameters p) {
        return kl_divergence(Normal(p[0], p[1]), Laplace(p[2], p[3]));
    });
    expect_divergence("laplace_normal", [](Parameters p) {
        return kl_divergence(Laplace(p[0], p[1]), Normal(p[2], p[3]));
    });
    expect_divergence("uniform_normal", [](Parameters p) {
        return kl_divergence(Uniform(p[0], p[1]), Normal(p[2], p[3]));
    });
    expect_divergence("normal_uniform", [](Parameters p) {
        return kl_divergence(Normal(p[0], p[1]), Uniform(p[2], p[3]));
    });
    expect_divergence("laplace_uniform", [](Parameters p) {
        return kl_divergence(Laplace(p[0], p[1]), Uniform(p[2], p[3]));
    });
    expect_divergence("multivariate_normal", [](Parameters p) {
        return kl_divergence(MultivariateNormal(p[0], {.scale_tril = p[1]}),
                             MultivariateNormal(p[2], {.scale_tril = p[3]}));
    });
    expect_divergence("independent", [](Parameters p) {
        return kl_divergence(Independent(Normal(p[0], p[1]), 1),
                             Independent(Normal(p[2], p[3]), 1));
    });
}

constexpr std::int64_t kSamples = 40'000;
// The bounds of the tests in standard errors. With a fixed seed, the tests always have the same
// result. A correct sampler exceeds a bound with a probability of 6e-7.
constexpr double kErrors = 5;

// Compares the mean and the variance of samples with the distribution's. The standard errors are
// sqrt(variance / n) and, with the fourth central moment m4, sqrt((m4 - variance^2) / n).
void expect_moments(const Distribution& distribution, const Tensor& samples) {
    const double n = static_cast<double>(samples.size(0));
    const std::vector<double> x = samples.to_vector(), mean = distribution.mean().to_vector(),
                              variance = distribution.variance().to_vector();
    const std::size_t parts = mean.size();
    for (std::size_t k = 0; k < parts; ++k) {
        double sum = 0, squares = 0, fourth = 0;
        for (std::size_t i = k; i < x.size(); i += parts) {
            const double d = x[i] - mean[k];
            sum += d, squares += d * d, fourth += d * d * d * d;
        }
        EXPECT_NEAR(sum / n, 0, kErrors * std::sqrt(variance[k] / n)) << "mean of part " << k;
        const double spread = fourth / n - variance[k] * variance[k];
        EXPECT_NEAR(squares / n, variance[k], kErrors * std::sqrt(spread / n))
            << "variance of part " << k;
    }
}

// Compares the moments of samples, and the share of samples up to each recorded point, with the
// distribution. The standard error of the share is sqrt(F (1 - F) / n), where F is the distribution
// function.
void expect_samples(const std::string& name, const Distribution& distribution) {
    SCOPED_TRACE(name);
    manual_seed(7);
    const Tensor samples = distribution.sample({kSamples});
    expect_moments(distribution, samples);
    const std::vector<double> points = recorded("samples." + name + ".points").to_vector(),
                              cdf = recorded("samples." + name + ".cdf").to_vector();
    const double n = static_cast<double>(kSamples);
    for (std::size_t i = 0; i < points.size(); ++i) {
        const double share = sum(to(le(samples, points[i]), f64)).item() / n;
        EXPECT_NEAR(share, cdf[i], kErrors * std::sqrt(cdf[i] * (1 - cdf[i]) / n)) << points[i];
    }
}

TEST(Distributions, DrawSamplesWithTheirDistributionFunctions) {
    expect_samples("normal", Normal(0.5, 2));
    expect_samples("log_normal", LogNormal(0.25, 0.5));
    expect_samples("uniform", Uniform(-2, 3));
    expect_samples("exponential", Exponential(1.5));
    expect_samples("laplace", Laplace(0.5, 1.5));
    for (const double shape : {0.1, 0.7, 1.0, 3.5, 40.0})
        expect_samples(str("gamma_", shape), Gamma(shape, 1));
    expect_samples("beta", Beta(0.6, 1.7));
}

TEST(Distributions, DrawVectorsAndDiscreteSamplesWithTheirMoments) {
    manual_seed(8);
    const Dirichlet dirichlet(tensor({0.3, 1.0, 4.0}, {.dtype = f64}));
    expect_moments(dirichlet, dirichlet.sample({kSamples}));
    const MultivariateNormal normal(tensor({1.0, -2.0}),
                                    {.covariance_matrix = tensor({2.0, 0.6, 0.6, 0.5}, {2, 2})});
    const Tensor vectors = normal.sample({kSamples});
    expect_moments(normal, vectors);
    const Tensor centered = sub(vectors, normal.mean());
    const double product = mean(mul(select(centered, 1, 0), select(centered, 1, 1))).item();
    // The variance of the product is a b + c^2 for variances a and b and the covariance c.
    EXPECT_NEAR(product, 0.6, kErrors * std::sqrt((2.0 * 0.5 + 0.36) / kSamples));
    const Bernoulli bernoulli({.probs = tensor({0.2, 0.9})});
    expect_moments(bernoulli, bernoulli.sample({kSamples}));
    const Categorical categorical({.probs = tensor({1.0, 3.0, 0.0, 4.0})});
    const std::vector<double> counts = bincount(categorical.sample({kSamples}), {}, 4).to_vector();
    const double p[] = {0.125, 0.375, 0, 0.5};
    for (int i = 0; i < 4; ++i)
        EXPECT_NEAR(counts[static_cast<std::size_t>(i)] / kSamples, p[i],
                    kErrors * std::sqrt(p[i] * (1 - p[i]) / kSamples));
}

TEST(StandardGamma, HasSlopesThatMatchMpmath) {
    const Tensor& rows = recorded("slopes");
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
        const std::vector<double> row = rows[i].to_vector();
        const double slope = standard_gamma_slope(row[0], row[1]);
        EXPECT_NEAR(slope, row[2], 1e-9 * std::max(1.0, std::abs(row[2])))
            << "concentration " << row[0] << ", ln(z) " << row[1];
    }
}

// The mean of the gradients of x^2 is the gradient of E[x^2].
TEST(Gamma, HasUnbiasedGradientsOfSamples) {
    manual_seed(9);
    const Tensor shape = tensor({0.4, 1.0, 6.0}, {.dtype = f64, .requires_grad = true});
    const Tensor each = expand(shape.detach(), {kSamples, 3}).contiguous();
    Tensor leaf = clone(each).set_requires_grad();
    const Tensor x = Gamma(leaf, 2).rsample();
    sum(square(x)).backward();
    // E[x^2] = c (c + 1) / 4, and its derivative is (2 c + 1) / 4.
    const auto [variance, average] = var_mean(leaf.grad(), 0);
    for (int i = 0; i < 3; ++i) {
        const double c = shape.detach().to_vector()[static_cast<std::size_t>(i)];
        const double error = std::sqrt(variance[i].item() / kSamples);
        EXPECT_NEAR(average[i].item(), (2 * c + 1) / 4, kErrors * error) << c;
    }
}

TEST(Beta, HasUnbiasedGradientsOfSamples) {
    manual_seed(10);
    Tensor a = full({kSamples}, 0.5, {.dtype = f64}).set_requires_grad();
    Tensor b = full({kSamples}, 2.0, {.dtype = f64}).set_requires_grad();
    sum(Beta(a, b).rsample()).backward();
    // The mean is a / (a + b).
    const double total = 2.5 * 2.5;
    const auto [variance_a, mean_a] = var_mean(a.grad());
    const auto [variance_b, mean_b] = var_mean(b.grad());
    EXPECT_NEAR(mean_a.item(), 2.0 / total, kErrors * std::sqrt(variance_a.item() / kSamples));
    EXPECT_NEAR(mean_b.item(), -0.5 / total, kErrors * std::sqrt(variance_b.item() / kSamples));
}

TEST(Dirichlet, DrawsFiniteSamplesForSmallConcentrations) {
    manual_seed(11);
    Tensor concentration = full({100, 3}, 1e-3).set_requires_grad();
    const Tensor x = Dirichlet(concentration).rsample();
    EXPECT_TRUE(all(isfinite(x)).item<bool>());
    expect_close(sum(x, -1).detach(), ones({100}), 1e-5);
    sum(mul(x, x)).backward();
    EXPECT_TRUE(all(isfinite(concentration.grad())).item<bool>());
}

TEST(Distributions, RejectInvalidParametersAndValues) {
    const Tensor one = ones({2}), zero = zeros({2});
    expect_error<ValueError>({"Normal: scale must be positive: 0 at element 0 of shape [2]"},
                             [&] { Normal(one, zero); });
    expect_error<ShapeError>({"Normal"}, [&] { Normal(ones({3}), one); });
    expect_error<DTypeError>({"Normal"}, [&] { Normal(ones({3}, {i64}), 1); });
    expect_error<DeviceError>({"Normal", "meta"}, [&] {
        Normal(one, ones({2}, {f32, Device::meta()}));
    });
    expect_error<ShapeError>({"kl_divergence: the numbers of categories differ: p 2, q 1"}, [&] {
        kl_divergence(Categorical({.probs = one}), Categorical({.probs = ones({1})}));
    });
    expect_error<ValueError>({"Uniform: low must be below high"}, [&] { Uniform(1, 1); });
    expect_error<ValueError>({"Exponential: rate must be positive"}, [&] { Exponential{zero}; });
    expect_error<ValueError>({"Laplace: scale"}, [&] { Laplace(0, -1); });
    expect_error<ValueError>({"Gamma: concentration"}, [&] { Gamma(zero, one); });
    expect_error<ValueError>({"Beta: concentration0"}, [&] { Beta(one, zero); });
    expect_error<ValueError>({"Dirichlet: concentration"}, [&] { Dirichlet{zero}; });
    expect_error<ValueError>({"Categorical: probs must be at least 0"},
                             [&] { Categorical({.probs = -one}); });
    expect_error<ValueError>({"Categorical: exactly one"}, [&] { Categorical({}); });
    expect_error<ValueError>({"Bernoulli: exactly one"},
                             [&] { Bernoulli({.probs = one, .logits = one}); });
    expect_error<ValueError>({"Bernoulli: probs must be in [0, 1]"},
                             [&] { Bernoulli({.probs = mul(one, 2)}); });
    expect_error<ValueError>({"Independent: reinterpreted_batch_ndims must be in [0, "},
                             [&] { Independent(Normal(one, 1), 2); });
    expect_error<ValueError>({"MultivariateNormal: exactly one"},
                             [&] { MultivariateNormal(one, {}); });
    expect_error<ValueError>({"", "symmetric"}, [&] {
        MultivariateNormal(one, {.covariance_matrix = tensor({1.0, 0.5, 0.0, 1.0}, {2, 2})});
    });
    expect_error<ShapeError>({"MultivariateNormal"},
                             [&] { MultivariateNormal(one, {.scale_tril = eye(3)}); });
    expect_error<linalg::LinAlgError>({"", "positive-definite"}, [&] {
        MultivariateNormal(one, {.covariance_matrix = zeros({2, 2})});
    });
    expect_error<ValueError>({"Exponential: the value must be at least 0"},
                             [&] { Exponential(1).log_prob(-one); });
    expect_error<ValueError>({"Categorical: the value"},
                             [&] { Categorical({.probs = one}).log_prob(full({}, 2)); });
    expect_error<ShapeError>({"Normal"}, [&] { Normal(one, 1).log_prob(ones({3})); });
    EXPECT_EQ(Exponential(1, false).log_prob(-one).to_vector()[0], 1);
}

// PyTorch accepts and rejects the same parameters.
TEST(Distributions, RejectNaNParametersAndAcceptInfiniteLocations) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const Tensor nan = tensor({1.0, std::nan("")}), one = ones({2}), inf = tensor({1.0, infinity});
    const char* const text =
        "Normal: loc must be a number (not NaN): nan at element 1 of shape [2]";
    expect_error<ValueError>({text}, [&] { Normal(nan, 1); });
    expect_error<ValueError>({"LogNormal: loc"}, [&] { LogNormal(nan, 1); });
    expect_error<ValueError>({"Laplace: loc"}, [&] { Laplace(nan, 1); });
    expect_error<ValueError>({"MultivariateNormal: loc"},
                             [&] { MultivariateNormal(nan, {.scale_tril = eye(2)}); });
    expect_error<ValueError>({"MultivariateNormal"},
                             [&] { MultivariateNormal(one, {.scale_tril = diag(nan)}); });
    expect_error<ValueError>({"MultivariateNormal"},
                             [&] { MultivariateNormal(one, {.covariance_matrix = diag(inf)}); });
    for (const Tensor& x : {nan, -inf}) {
        expect_error<ValueError>({"Normal: scale"}, [&] { Normal(0, x); });
        expect_error<ValueError>({"LogNormal: scale"}, [&] { LogNormal(0, x); });
        expect_error<ValueError>({"Laplace: scale"}, [&] { Laplace(0, x); });
        expect_error<ValueError>({"Uniform: low"}, [&] { Uniform(0, x); });
        expect_error<ValueError>({"Exponential: rate"}, [&] { Exponential{x}; });
        expect_error<ValueError>({"Gamma: concentration"}, [&] { Gamma(x, 1); });
        expect_error<ValueError>({"Gamma: rate"}, [&] { Gamma(1, x); });
        expect_error<ValueError>({"Beta: concentration1"}, [&] { Beta(x, 1); });
        expect_error<ValueError>({"Beta: concentration0"}, [&] { Beta(1, x); });
        expect_error<ValueError>({"Dirichlet: concentration"}, [&] { Dirichlet{x}; });
        expect_error<ValueError>({"Bernoulli: probs"}, [&] { Bernoulli({.probs = x}); });
    }
    for (const Tensor& x : {nan, inf}) {
        expect_error<ValueError>({"Categorical"}, [&] { Categorical({.probs = x}); });
        expect_error<ValueError>({"Categorical"}, [&] { Categorical({.logits = x}); });
    }
    expect_error<ValueError>({"Categorical: logits"},
                             [&] { Categorical({.logits = full({2}, -infinity)}); });
    expect_error<ValueError>({"Bernoulli: logits"}, [&] { Bernoulli({.logits = nan}); });
    Normal(inf, inf), Laplace(inf, inf), Bernoulli({.logits = inf}), Uniform(-inf, 2);
    EXPECT_EQ(Categorical({.logits = -inf}).probs.to_vector(), (std::vector<double>{1, 0}));
    EXPECT_TRUE(isnan(Normal(nan, 1, false).loc)[1].item<bool>());
}

}  // namespace
}  // namespace axle::distributions
