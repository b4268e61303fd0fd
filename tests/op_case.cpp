#include "tests/op_case.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/cases/cases.h"

namespace axle::tests {

Input floats(const Shape& shape, double low, double high) {
    return {shape, Input::Kind::floats, low, high};
}
Input distinct(const Shape& shape) { return {shape, Input::Kind::distinct}; }
Input ties(const Shape& shape) { return {shape, Input::Kind::ties}; }
Input specials(const Shape& shape) { return {shape, Input::Kind::specials}; }
Input ints(const Shape& shape, std::int64_t low, std::int64_t high, DType dtype) {
    return {shape, Input::Kind::ints, static_cast<double>(low), static_cast<double>(high), dtype};
}
Input frozen(Input input) {
    input.frozen = true;
    return input;
}
Input mask(const Shape& shape) { return ints(shape, 0, 2, boolean); }

double Tolerances::of(DType dtype) const {
    return dtype == axle::f16 ? f16 : dtype == axle::bf16 ? bf16 : dtype == axle::f32 ? f32 : 1e-10;
}

const std::vector<OpCase>& op_cases() {
    static const std::vector<OpCase> cases = [] {
        Cases all;
        const auto add = [&](const char* family, void (*add_cases)(Cases&)) {
            const std::size_t first = all.size();
            add_cases(all);
            for (std::size_t i = first; i < all.size(); ++i) all[i].family = family;
        };
        add("create", add_create_cases);
        add("random", add_random_cases);
        add("convert", add_convert_cases);
        add("view", add_view_cases);
        add("shaping", add_shaping_cases);
        add("arithmetic", add_arithmetic_cases);
        add("compare", add_compare_cases);
        add("unary", add_unary_cases);
        add("elementwise", add_elementwise_cases);
        add("reduce", add_reduce_cases);
        add("reductions", add_reductions_cases);
        add("statistics", add_statistics_cases);
        add("index", add_index_cases);
        add("selection", add_selection_cases);
        add("matmul", add_matmul_cases);
        add("products", add_products_cases);
        add("linalg", add_linalg_cases);
        add("conv", add_conv_cases);
        add("norm", add_norm_cases);
        add("pool", add_pool_cases);
        add("interpolate", add_interpolate_cases);
        add("sampling", add_sampling_cases);
        add("convolutions", add_convolutions_cases);
        add("pools", add_pools_cases);
        add("attention", add_attention_cases);
        add("recurrent", add_recurrent_cases);
        add("loss", add_loss_cases);
        add("losses", add_losses_cases);
        add("checkpoint", add_checkpoint_cases);
        return all;
    }();
    return cases;
}

namespace {

std::vector<double> input_values(const Input& input, int position, std::mt19937_64& random) {
    static const double infinity = std::numeric_limits<double>::infinity();
    static const double kSpecials[] = {
        0, -0.0, 1, -1, infinity, -infinity, -infinity - -infinity, 1e20f, -1e20f, 1e-20f, -1e-20f};
    const std::int64_t n = numel(input.shape);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    if (input.kind == Input::Kind::distinct)
        for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    const auto below = [&](double count) {
        return static_cast<double>(random() % static_cast<std::uint64_t>(count));
    };
    const double span = input.high - input.low;
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) {
        switch (input.kind) {
            case Input::Kind::floats:
                values.push_back(input.low + below(span * 64) / 64 + (1 + position) / 512.0);
                break;
            case Input::Kind::distinct: {
                const double place = static_cast<double>(order[static_cast<std::size_t>(i)]) + 0.5;
                const double value = input.low + place / static_cast<double>(n) * span;
                values.push_back(std::round(value * 4096) / 4096);
                break;
            }
            case Input::Kind::ties:
                values.push_back(below(5) - 2);
                break;
            case Input::Kind::specials:
                values.push_back(kSpecials[i % static_cast<std::int64_t>(std::size(kSpecials))]);
                break;
            case Input::Kind::ints:
                values.push_back(input.low + below(span));
        }
    }
    return values;
}

}  // namespace

std::vector<Tensor> make_inputs(const OpCase& c, const Row& row, DType dtype, Device device) {
    std::seed_seq seed(c.name.begin(), c.name.end());
    std::mt19937_64 random(seed);
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const DType t = row[i].floating() ? dtype : row[i].dtype;
        if (device.is_meta()) {
            inputs.push_back(Tensor::empty(row[i].shape, {t, device}));
            continue;
        }
        const auto values = input_values(row[i], static_cast<int>(i), random);
        inputs.push_back(tensor(values, row[i].shape, {t, device}));
    }
    return inputs;
}

Outputs forward(const OpCase& c, In x) {
    manual_seed(11);
    return c.call(x);
}

std::vector<int> differentiable(const OpCase& c, const Row& row) {
    std::vector<int> wanted;
    for (std::size_t i = 0; c.gradient && i < row.size(); ++i)
        if (row[i].floating() && !row[i].frozen) wanted.push_back(static_cast<int>(i));
    return wanted;
}

Result forward_backward(const OpCase& c, In x, const std::vector<int>& wanted) {
    std::vector<Tensor> inputs;
    for (const Tensor& t : x) inputs.push_back(t.detach());
    std::vector<Tensor> leaves;
    for (const int i : wanted)
        leaves.push_back(inputs[static_cast<std::size_t>(i)].set_requires_grad());

    Result result;
    result.outputs = forward(c, inputs);
    result.grads.resize(x.size());
    std::vector<Tensor> roots, weights;
    for (std::size_t k = 0; k < result.outputs.size(); ++k) {
        if (!result.outputs[k].requires_grad()) continue;
        roots.push_back(result.outputs[k]);
        weights.push_back(cotangent(result.outputs[k], static_cast<int>(k)));
    }
    if (roots.empty()) throw UsageError(c.name + ": no output requires a gradient");
    const auto grads = autograd::grad(roots, leaves, weights);
    for (std::size_t j = 0; j < wanted.size(); ++j)
        result.grads[static_cast<std::size_t>(wanted[j])] =
            grads[j].defined() ? grads[j] : zeros_like(leaves[j]).detach();
    for (Tensor& y : result.outputs) y = y.detach();
    return result;
}

double cotangent_value(std::int64_t i, int k) {
    const auto index = static_cast<std::uint32_t>(i + 1 + 1000 * k);
    return (static_cast<double>((index * 2654435761u >> 16) % 15) - 7) / 8;
}

Tensor cotangent(const Tensor& output, int k) {
    if (output.device().is_meta())
        return Tensor::empty(output.shape(), {output.dtype(), output.device()});
    std::vector<double> values;
    for (std::int64_t i = 0; i < output.numel(); ++i) values.push_back(cotangent_value(i, k));
    return tensor(values, output.shape(), {output.dtype(), output.device()});
}

Tensor with_layout(const Tensor& x, Layout layout) {
    const int dims = x.dim();
    auto impl = std::make_shared<Impl>();
    impl->shape = x.shape();
    impl->dtype = x.dtype();
    impl->offset = layout == Layout::contiguous ? 0 : 1;
    impl->strides = x.shape();
    int repeated = dims;
    if (layout == Layout::expanded)
        for (int d = dims - 1; d >= 0; --d)
            if (x.size(d) > 1) repeated = d;

    std::int64_t room = layout == Layout::sliced ? 2 : 1;
    for (int i = 0; i < dims; ++i) {
        const int d = layout == Layout::transposed ? i : dims - 1 - i;
        impl->strides[d] = d == repeated ? 0 : room;
        if (d != repeated) room *= x.size(d);
    }
    const auto width = static_cast<std::size_t>(size_of(x.dtype()));
    const auto bytes = static_cast<std::size_t>(impl->offset + room) * width;
    impl->storage = std::make_shared<Storage>(bytes, x.device());
    std::memset(impl->storage->data(), 0xff, bytes);

    auto* to = static_cast<std::byte*>(impl->storage->data()) +
               static_cast<std::size_t>(impl->offset) * width;
    const auto* from = static_cast<const std::byte*>(x.numel() ? x.raw_data() : nullptr);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
        std::int64_t target = 0, source = 0, rest = i;
        for (int d = dims - 1; d >= 0; --d) {
            const std::int64_t at = rest % x.size(d);
            rest /= x.size(d);
            target += at * impl->strides[d];
            source += (d == repeated ? 0 : at) * x.strides()[d];
        }
        const auto offset = [&](std::int64_t elements) {
            return elements * static_cast<std::int64_t>(width);
        };
        std::memcpy(to + offset(target), from + offset(source), width);
    }
    return Tensor(std::move(impl));
}

}  // namespace axle::tests
