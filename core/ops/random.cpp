#include "core/random.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/random_part.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/creation/random_integers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/random.h"
#include "kernels/ops/sort.h"

namespace axle {
namespace {

// Calls fill(tensor, random) with x, or, if x is not contiguous, with a contiguous tensor that is
// then copied to x. `random` is the Philox state for the elements of x. On the meta device, no
// random numbers are drawn.
template <class Fill>
void fill_random(Tensor& x, Fill&& fill) {
    if (x.device().is_meta()) return;
    if (!x.is_contiguous()) {
        Tensor whole = empty_like(x);
        fill(whole, take_random(random_blocks(x.numel())));
        x.copy_(whole);
        return;
    }
    fill(x, take_random(random_blocks(x.numel())));
    x.impl()->storage->bump_version();
}

// Creates a tensor, calls fill(tensor), and returns the tensor.
template <class Fill>
Tensor filled(const Shape& shape, TensorOptions options, Fill&& fill) {
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(shape, options);
    fill(y);
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor apply_dropout(const Tensor& x, double p, kernels::Philox random) {
    const Tensor dense = contiguous(x.detach());
    Tensor y = empty_like(x);
    launch(x.device(), [&](auto& on) { kernels::dropout(on, random, p, dense.view(), y.view()); });
    return record("dropout", y, {x}, [p, random](const Grads& dy, Needs) -> Grads {
        return {apply_dropout(dy[0], p, random)};
    });
}

// Applies dropout to a part of a larger tensor. `random` has one number for each element of the
// larger tensor. The part consists of runs of elements that are consecutive in the larger tensor;
// the distance between the starts of two runs is `part.parts` times the length of a run.
Tensor apply_dropout_to_part(const Tensor& x, double p, kernels::Philox random,
                             const RandomPart& part) {
    std::int64_t runs = 1;
    for (int d = 0; d < part.dim; ++d) runs *= x.size(d);
    const std::int64_t run = runs == 0 ? 0 : x.numel() / runs;
    const Tensor dense = contiguous(x.detach()).reshape({runs, run});
    const Tensor y = empty_like(dense);
    for (std::int64_t i = 0; i < runs && run > 0; ++i) {
        const std::int64_t first = (i * part.parts + part.part) * run;
        kernels::Philox of_run = random;
        of_run.offset += static_cast<std::uint64_t>(first / 4);
        // A Philox block has four numbers. If the run starts within a block, the input is padded at
        // its start, so that it begins with the first number of the block.
        const std::int64_t before = first % 4;
        Tensor to = y.narrow(0, i, 1);
        if (before == 0) {
            const Tensor from = dense.narrow(0, i, 1);
            launch(x.device(),
                   [&](auto& on) { kernels::dropout(on, of_run, p, from.view(), to.view()); });
            continue;
        }
        const Tensor from = pad(dense.narrow(0, i, 1), {before, 0});
        Tensor all = empty_like(from);
        launch(x.device(),
               [&](auto& on) { kernels::dropout(on, of_run, p, from.view(), all.view()); });
        to.copy_(all.narrow(1, before, run));
    }
    return record("dropout", y.reshape(x.shape()), {x},
                  [p, random, part](const Grads& dy, Needs) -> Grads {
                      return {apply_dropout_to_part(dy[0], p, random, part)};
                  });
}

// Throws ValueError if a weight is negative or not finite, or if a row has fewer than `needed`
// positive weights. On a CPU, the function throws immediately; on a GPU, the error is reported
// asynchronously.
void check_weights(const Tensor& weights, std::int64_t needed, std::int64_t samples) {
    launch(weights.device(), [&]<class On>(On& on) {
        if constexpr (std::is_same_v<On, kernels::Cpu>) {
            const auto bad = kernels::find_bad_weights(on, weights.view(), needed);
            if (bad.why != kernels::BadWeights::none)
                throw ValueError(str("multinomial: ", kernels::reason(bad.why), ": row ", bad.row,
                                     " of weights ", weights.shape(), ", ", samples, " samples"));
        } else {
            kernels::check_weights(on, weights.view(), needed);
        }
    });
}

// Returns the range of integers that a dtype represents exactly.
std::pair<double, double> exact_integer_range(DType t) {
    if (t == boolean) return {0, 1};
    if (t == u8) return {0, 255};
    if (t == i32) return {-0x1p31, 0x1p31 - 1};
    if (t == bf16) return {-0x1p8, 0x1p8};
    if (t == f16) return {-0x1p11, 0x1p11};
    if (t == f32) return {-0x1p24, 0x1p24};
    if (t == f64) return {-0x1p53, 0x1p53};
    return {-0x1p63, 0x1p63};
}

thread_local RandomPart current_part;

}  // namespace

RandomPartGuard::RandomPartGuard(const RandomPart& part) : before_(current_part) {
    if (part.parts > 1) current_part = part;
}
RandomPartGuard::~RandomPartGuard() { current_part = before_; }
const RandomPart& RandomPartGuard::current() { return current_part; }

Tensor& Tensor::uniform_(double low, double high) {
    const profiler::OpScope scope("uniform_");
    check_in_place("uniform_", *this);
    check_floating("uniform_", *this, "the tensor");
    if (!(low <= high) || !std::isfinite(high - low))
        throw ValueError(
            str("uniform_: the range must be finite, and low must not exceed high: low is ", low,
                ", high is ", high));
    fill_random(*this, [&](Tensor& x, kernels::Philox random) {
        launch(x.device(), [&](auto& on) { kernels::uniform(on, random, low, high, x.view()); });
    });
    return *this;
}

Tensor& Tensor::normal_(double mean, double std) {
    const profiler::OpScope scope("normal_");
    check_in_place("normal_", *this);
    check_floating("normal_", *this, "the tensor");
    if (!(std >= 0)) throw ValueError(str("normal_: std must be at least 0: ", std));
    fill_random(*this, [&](Tensor& x, kernels::Philox random) {
        launch(x.device(), [&](auto& on) { kernels::normal(on, random, mean, std, x.view()); });
    });
    return *this;
}

Tensor rand(const Shape& shape, TensorOptions options) {
    return filled(shape, options, [](Tensor& y) {
        check_floating("rand", y, "the result");
        y.uniform_();
    });
}

Tensor randn(const Shape& shape, TensorOptions options) {
    return filled(shape, options, [](Tensor& y) {
        check_floating("randn", y, "the result");
        y.normal_();
    });
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options) {
    return random_integers("randint", low, high, shape, options);
}

Tensor random_integers(const char* op, std::int64_t low, std::int64_t high, const Shape& shape,
                       TensorOptions options) {
    const profiler::OpScope scope("randint");
    std::int64_t range = 0;
    if (low >= high || __builtin_sub_overflow(high, low, &range) || range > std::int64_t{1} << 32)
        throw ValueError(
            str(op, ": the range must contain 1 to 2^32 numbers: [", low, ", ", high, ")"));
    const auto [lowest, highest] = exact_integer_range(options.dtype);
    if (static_cast<double>(low) < lowest || static_cast<double>(high - 1) > highest)
        throw ValueError(str(op, ": ", options.dtype,
                             " cannot represent all numbers of the range: [", low, ", ", high,
                             ")"));
    return filled(shape, options, [&](Tensor& y) {
        check_compute(op, y, "the result");
        const bool index = y.dtype() == i64 || y.dtype() == i32;
        Tensor whole = index ? y : empty(shape, {.dtype = i64, .device = y.device()});
        fill_random(whole, [&](Tensor& x, kernels::Philox random) {
            launch(x.device(),
                   [&](auto& on) { kernels::randint(on, random, low, high, x.view()); });
        });
        if (!index) y.copy_(whole);
    });
}

Tensor dropout(const Tensor& x, double p, bool training) {
    const profiler::OpScope scope("dropout");
    check_device("dropout", {&x});
    check_floating("dropout", x);
    if (!(p >= 0 && p <= 1)) throw ValueError(str("dropout: p must be in [0, 1]: ", p));
    if (!training || p == 0) return x;
    if (x.device().is_meta()) return apply_dropout(x, p, {});
    const RandomPart& part = RandomPartGuard::current();
    const kernels::Philox random = take_random(random_blocks(x.numel() * part.parts));
    if (part.parts == 1) return apply_dropout(x, p, random);
    return apply_dropout_to_part(x, p, random,
                                 {wrap_dim("dropout", part.dim, x.dim()), part.part, part.parts});
}

Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement) {
    const profiler::OpScope scope("multinomial");
    const Device device = check_device("multinomial", {&weights});
    check_floating("multinomial", weights, "weights");
    if (weights.dim() == 0)
        throw ShapeError("multinomial: weights must be [..., n]: weights is []");
    if (samples < 1)
        throw ValueError(str("multinomial: the number of samples must be positive: ", samples));
    const std::int64_t n = weights.size(-1);
    if (!replacement && samples > n)
        throw ValueError(
            str("multinomial: without replacement, the number of samples must not exceed the "
                "number of weights: ",
                samples, " samples, weights ", weights.shape()));
    if (device.is_cuda() && !replacement && n > kernels::kMaxSortedElements)
        throw ValueError(str("multinomial: a GPU supports at most ", kernels::kMaxSortedElements,
                             " weights per row without replacement: weights is ", weights.shape(),
                             "; move the weights to the CPU"));
    check_weights(weights, replacement ? 1 : samples, samples);
    Shape shape = weights.shape();
    shape[shape.size() - 1] = samples;
    Tensor y = empty(shape, {.dtype = i64, .device = device});
    if (device.is_meta()) return y;
    const kernels::Philox random =
        take_random(random_blocks(replacement ? y.numel() : weights.numel()));
    launch(device, [&](auto& on) {
        kernels::multinomial(on, random, replacement, weights.view(), y.view());
    });
    return y;
}

}  // namespace axle
