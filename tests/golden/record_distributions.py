"""Records torch.distributions in float64 in distributions.safetensors, for tests/core/distributions.

For each case, the file has the parameters ("p0", ...), a value, and for each function its result
("out") and the gradients ("grad_p0", ..., "grad_value") of the sum of the result multiplied by a
factor. "cdf" has values of the distribution function at the points "points", to test samples.
"slopes" has derivatives of samples of the gamma distribution, which mpmath computes.
"""

import math
import pathlib

import mpmath
import torch
from safetensors.torch import save_file
from torch import distributions as d

torch.set_default_dtype(torch.float64)
torch.manual_seed(31)
record = {}


def keep(name, tensor):
    record[name] = tensor.detach().clone().contiguous()


def call(prefix, function, parameters, value=None):
    """Records the result of function(parameters, value) and its gradients."""
    leaves = {f"p{i}": p for i, p in enumerate(parameters)}
    if value is not None and value.is_floating_point():
        leaves["value"] = value
    leaves = {name: x.clone().requires_grad_() for name, x in leaves.items()}
    own = [leaves[f"p{i}"] for i in range(len(parameters))]
    y = function(own, leaves.get("value", value))
    keep(f"{prefix}.out", y)
    if not y.requires_grad:
        return
    factor = torch.randn_like(y)
    keep(f"{prefix}.factor", factor)
    grads = torch.autograd.grad((y * factor).sum(), leaves.values(), allow_unused=True)
    for (name, x), grad in zip(leaves.items(), grads):
        keep(f"{prefix}.grad_{name}", torch.zeros_like(x) if grad is None else grad)


def case(name, make, parameters, value):
    for i, p in enumerate(parameters):
        keep(f"{name}.p{i}", p)
    keep(f"{name}.value", value)
    call(f"{name}.log_prob", lambda p, v: make(*p).log_prob(v), parameters, value)
    for function in "entropy", "mean", "variance":
        def of(p, v, function=function):
            y = getattr(make(*p), function)
            return y() if callable(y) else y
        call(f"{name}.{function}", of, parameters)


def kl(name, make_p, p, make_q, q):
    for i, x in enumerate(p + q):
        keep(f"kl.{name}.p{i}", x)
    call(f"kl.{name}", lambda x, _: d.kl_divergence(make_p(*x[:len(p)]), make_q(*x[len(p):])), p + q)


def cdf(name, points, function):
    keep(f"{name}.points", torch.tensor(points))
    keep(f"{name}.cdf", torch.tensor([float(function(x)) for x in points]))


def R(*shape):
    return torch.randn(shape)


def P(*shape):
    """Returns positive numbers."""
    return torch.rand(shape) * 3 + 0.3


def spd(n, *batch):
    x = R(*batch, n, n)
    return x @ x.mT + torch.eye(n)


def tril(n, *batch):
    return torch.tril(R(*batch, n, n), -1) + torch.diag_embed(P(*batch, n))


def simplex(*shape):
    return torch.softmax(R(*shape), -1)


probs, logits = lambda f: lambda x: f(probs=x), lambda f: lambda x: f(logits=x)
bits = lambda *shape: torch.bernoulli(torch.full(shape, 0.5))
case("normal", d.Normal, [R(3, 1), P(4)], R(2, 3, 4))
case("log_normal", d.LogNormal, [R(3), P(3) / 2], P(2, 3))
case("categorical_probs", probs(d.Categorical), [P(2, 5)], torch.randint(0, 5, (3, 2)))
case("categorical_logits", logits(d.Categorical), [R(2, 5)], torch.randint(0, 5, (2,)))
case("bernoulli_probs", probs(d.Bernoulli), [torch.rand(5)], bits(3, 5))
case("bernoulli_logits", logits(d.Bernoulli), [R(5)], bits(5))
case("uniform", d.Uniform, [-P(4), P(4)], torch.rand(3, 4) * 0.3)
case("exponential", d.Exponential, [P(4)], P(3, 4))
case("laplace", d.Laplace, [R(4), P(4)], R(3, 4))
case("gamma", d.Gamma, [P(3, 1), P(4)], P(2, 3, 4))
case("beta", d.Beta, [P(4), P(4)], torch.rand(3, 4) * 0.8 + 0.1)
case("dirichlet", d.Dirichlet, [P(2, 4)], simplex(3, 2, 4))
case("independent", lambda x, s: d.Independent(d.Normal(x, s), 1), [R(3, 4), P(4)], R(2, 3, 4))
mvn = d.MultivariateNormal
by_tril = lambda x, m: mvn(x, scale_tril=m)
case("multivariate_normal_covariance", lambda x, m: mvn(x, covariance_matrix=(m + m.mT) / 2),
     [R(2, 3), spd(3)], R(4, 2, 3))
case("multivariate_normal_precision", lambda x, m: mvn(x, precision_matrix=(m + m.mT) / 2),
     [R(3), spd(3, 2)], R(4, 2, 3))
case("multivariate_normal_tril", by_tril, [R(3), tril(3)], R(4, 3))

kl("normal", d.Normal, [R(3), P(3)], d.Normal, [R(3), P(3)])
kl("log_normal", d.LogNormal, [R(3), P(3)], d.LogNormal, [R(3), P(3)])
kl("categorical", probs(d.Categorical), [P(2, 4)], logits(d.Categorical), [R(2, 4)])
kl("categorical_zeros", probs(d.Categorical), [torch.tensor([[0.5, 0.5, 0], [0.5, 0, 0.5]])],
   probs(d.Categorical), [torch.tensor([[0.25, 0.75, 0], [0, 0.5, 0.5]])])
kl("bernoulli", probs(d.Bernoulli), [torch.rand(4)], logits(d.Bernoulli), [R(4)])
kl("uniform", d.Uniform, [-P(3), P(3)], d.Uniform, [-P(3) - 3, P(3) + 3])
kl("uniform_outside", d.Uniform, [-P(3), P(3)], d.Uniform, [-P(3) - 3, P(3) - 3])
kl("exponential", d.Exponential, [P(3)], d.Exponential, [P(3)])
kl("gamma", d.Gamma, [P(3), P(3)], d.Gamma, [P(3), P(3)])
kl("beta", d.Beta, [P(3), P(3)], d.Beta, [P(3), P(3)])
kl("dirichlet", d.Dirichlet, [P(2, 4)], d.Dirichlet, [P(2, 4)])
kl("laplace", d.Laplace, [R(3), P(3)], d.Laplace, [R(3), P(3)])
kl("normal_laplace", d.Normal, [R(3), P(3)], d.Laplace, [R(3), P(3)])
kl("laplace_normal", d.Laplace, [R(3), P(3)], d.Normal, [R(3), P(3)])
kl("uniform_normal", d.Uniform, [-P(3), P(3)], d.Normal, [R(3), P(3)])
kl("normal_uniform", d.Normal, [R(3), P(3)], d.Uniform, [-P(3), P(3)])
kl("laplace_uniform", d.Laplace, [R(3), P(3)], d.Uniform, [-P(3), P(3)])
kl("multivariate_normal", by_tril, [R(2, 3), tril(3)], by_tril, [R(3), tril(3, 2)])
independent = lambda x, s: d.Independent(d.Normal(x, s), 1)
kl("independent", independent, [R(2, 3), P(3)], independent, [R(3), P(2, 3)])

# The tests of samples use the same parameters.
of = lambda distribution: lambda x: distribution.cdf(torch.tensor(x))
cdf("samples.normal", [-1.0, 0.5, 2.0, 4.0], of(d.Normal(0.5, 2.0)))
cdf("samples.log_normal", [0.5, 1.0, 1.5, 3.0], of(d.LogNormal(0.25, 0.5)))
cdf("samples.uniform", [-1.5, 0.0, 1.0, 2.5], of(d.Uniform(-2.0, 3.0)))
cdf("samples.exponential", [0.1, 0.5, 1.0, 2.0], of(d.Exponential(1.5)))
cdf("samples.laplace", [-2.0, 0.5, 1.0, 3.0], of(d.Laplace(0.5, 1.5)))
for shape in 0.1, 0.7, 1.0, 3.5, 40.0:
    points = [0.1 * shape, 0.7 * shape, shape, 1.5 * shape]
    cdf(f"samples.gamma_{shape:g}", points, lambda x: mpmath.gammainc(shape, 0, x, regularized=True))
cdf("samples.beta", [0.1, 0.3, 0.5, 0.8],
    lambda x: mpmath.betainc(0.6, 1.7, 0, x, regularized=True))

rows = []
mpmath.mp.dps = 50
for a in 0.01, 0.3, 1.0, 2.5, 20.0, 500.0:
    for z in a * 1e-3, a * 0.5, a * 0.95, a, a + 0.9, a + 1.1, a * 1.1 + 1.2, a * 2 + 5:
        if z < a:
            with_respect = mpmath.diff(lambda x: mpmath.gammainc(x, 0, z, regularized=True), a)
        else:  # uses the complement, which does not round to 1
            with_respect = -mpmath.diff(
                lambda x: mpmath.gammainc(x, z, mpmath.inf, regularized=True), a)
        density = mpmath.exp((a - 1) * mpmath.log(z) - z - mpmath.loggamma(a))
        rows.append([a, math.log(z), float(-with_respect / density / z)])
keep("slopes", torch.tensor(rows))

path = pathlib.Path(__file__).parent / "distributions.safetensors"
save_file(record, path)
print(f"{path.name}: {len(record)} tensors")
