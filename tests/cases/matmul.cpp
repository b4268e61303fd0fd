#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Tolerances for sums of k products. Half precision also rounds the operands of the backward pass.
const Tolerances kSums = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};

double product_flops(In x) {
    const Tensor& a = x[0];
    return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(x[1].size(-1));
}
double linear_flops(In x) {
    return 2.0 * static_cast<double>(x[0].numel()) * static_cast<double>(x[1].size(0));
}
double feed_forward_flops(In x) {
    const Tensor& weight2 = x[3];
    return linear_flops(x) +
           2.0 * static_cast<double>(x[0].numel() / x[0].size(-1) * weight2.numel());
}

void add_bad_matmul_calls(Cases& cases) {
    const auto layers = [](const Shape& weight1, const Shape& weight2, const Shape& bias2) {
        feed_forward(floats_of({3, 4}), floats_of(weight1), {}, floats_of(weight2),
                     floats_of(bias2), Activation::relu);
    };
    refuses<DeviceError>(cases, "matmul", {"meta", "cpu"}, [] {
        matmul(ones({2}, {f32, Device::meta()}), floats_of({2}));
    });
    refuses<UsageError>(cases, "matmul", {}, [] { matmul(Tensor(), floats_of({2})); });
    refuses<DTypeError>(cases, "matmul", {"float32", "float64"}, [] {
        matmul(floats_of({2, 2}), ones({2, 2}, {f64}));
    });
    refuses<ShapeError>(
        cases, "matmul", {},
        [] {
            matmul(floats_of({2, 3}), floats_of({4, 5}));
        },
        "matmul: inner dimensions differ: a is [2, 3], b is [4, 5]");
    refuses<ShapeError>(
        cases, "matmul", {}, [] { matmul(floats_of({3}), floats_of({4})); },
        "matmul: inner dimensions differ: a is [3], b is [4]");
    refuses<ShapeError>(cases, "matmul", {"[2, 3, 4]", "[3, 4, 5]"}, [] {
        matmul(floats_of({2, 3, 4}), floats_of({3, 4, 5}));
    });
    refuses<ShapeError>(cases, "matmul", {"[]", "[3]"},
                        [] { matmul(floats_of({}), floats_of({3})); });
    refuses<DTypeError>(cases, "linear", {"float32", "bfloat16"}, [] {
        linear(floats_of({2, 2}), ones({2, 2}, {bf16}));
    });
    refuses<ShapeError>(cases, "linear", {"[3, 4]", "[5, 6]"}, [] {
        linear(floats_of({3, 4}), floats_of({5, 6}));
    });
    refuses<ShapeError>(cases, "linear", {"[5, 4]", "[4]"}, [] {
        linear(floats_of({3, 4}), floats_of({5, 4}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "linear", {"[4]"}, [] {
        linear(floats_of({3, 4}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "feed_forward", {"[3, 4]", "[5, 6]"}, [=] {
        layers({5, 6}, {2, 5}, {2});
    });
    refuses<ShapeError>(cases, "feed_forward", {"[out, 5]", "[5, 4]", "[2, 6]"}, [=] {
        layers({5, 4}, {2, 6}, {2});
    });
    refuses<ShapeError>(cases, "feed_forward", {"[2, 5]", "[3]"}, [=] {
        layers({5, 4}, {2, 5}, {3});
    });
}

}  // namespace

void add_matmul_cases(Cases& cases) {
    const auto pair = [](const Shape& a, const Shape& b) { return Row{floats(a), floats(b)}; };
    cases.push_back({.name = "matmul",
                     .torch = "torch.matmul(*x)",
                     .call = [](In x) { return matmul(x[0], x[1]); },
                     .rows = {pair({3, 4}, {4, 5}), pair({4}, {4}), pair({3, 4}, {4}),
                              pair({4}, {4, 5}), pair({1, 1}, {1, 1}), pair({0, 4}, {4, 5}),
                              pair({3, 0}, {0, 5}), pair({3, 4}, {4, 0}), pair({17, 67}, {67, 9})},
                     .large = pair({160, 173}, {173, 190}),
                     .twice = true,
                     .layout_bits = false,  // a transposed operand can be packed differently
                     .tolerance = kSums,
                     .flops = product_flops});
    cases.push_back(
        {.name = "matmul/batched",
         .torch = "torch.matmul(*x)",
         .call = [](In x) { return matmul(x[0], x[1]); },
         .rows = {pair({2, 3, 4}, {2, 4, 5}), pair({2, 3, 4}, {4, 5}), pair({3, 4}, {2, 4, 5}),
                  pair({2, 1, 3, 4}, {3, 4, 2}), pair({2, 3, 4}, {4}), pair({4}, {2, 4, 3}),
                  pair({0, 3, 4}, {4, 5}), pair({2, 3, 0}, {2, 0, 5}), pair({1, 5, 7}, {3, 7, 9})},
         .large = pair({9, 64, 65}, {9, 65, 66}),
         .twice = true,
         .layout_bits = false,
         .tolerance = kSums,
         .flops = product_flops});

    const auto layer = [&](std::string name, std::string torch, Activation activation) {
        cases.push_back({.name = std::move(name),
                         .torch = std::move(torch),
                         .call = [=](In x) { return linear(x[0], x[1], x[2], activation); },
                         .rows = {{floats({3, 4}), floats({5, 4}), floats({5})},
                                  {floats({4}), floats({5, 4}), floats({5})},
                                  {floats({0, 4}), floats({5, 4}), floats({5})},
                                  {floats({2, 3, 4}), floats({1, 4}), floats({1})},
                                  {floats({3, 17}, -1, 1), floats({67, 17}, -1, 1), floats({67})}},
                         .large = {floats({160, 173}), floats({190, 173}), floats({190})},
                         .layout_bits = false,
                         .tolerance = kSums,
                         .flops = linear_flops});
    };
    layer("linear", "F.linear(*x)", Activation::none);
    layer("linear/relu", "F.relu(F.linear(*x))", Activation::relu);
    layer("linear/gelu", "F.gelu(F.linear(*x))", Activation::gelu);
    layer("linear/gelu_tanh", "F.gelu(F.linear(*x), approximate='tanh')", Activation::gelu_tanh);
    layer("linear/silu", "F.silu(F.linear(*x))", Activation::silu);
    cases.push_back({.name = "linear/no_bias",
                     .torch = "F.linear(*x)",
                     .call = [](In x) { return linear(x[0], x[1]); },
                     .rows = {pair({3, 4}, {5, 4}), pair({2, 0, 4}, {5, 4}),
                              pair({2, 2, 4}, {3, 4}), pair({4}, {5, 4})},
                     .layout_bits = false,
                     .tolerance = kSums});
    cases.push_back({.name = "linear/no_bias_relu",
                     .torch = "F.relu(F.linear(*x))",
                     .call = [](In x) { return linear(x[0], x[1], {}, Activation::relu); },
                     .rows = {pair({3, 4}, {5, 4})},
                     .layout_bits = false,
                     .tolerance = kSums});

    const auto layers = [&](std::string name, std::string torch, Activation activation) {
        const auto row = [](const Shape& x, std::int64_t hidden, std::int64_t out) {
            const std::int64_t width = x.back();
            return Row{floats(x, -1, 1), floats({hidden, width}, -1, 1), floats({hidden}),
                       floats({out, hidden}, -1, 1), floats({out})};
        };
        cases.push_back(
            {.name = std::move(name),
             .torch = std::move(torch),
             .call = [=](In x) { return feed_forward(x[0], x[1], x[2], x[3], x[4], activation); },
             .rows = {row({3, 4}, 6, 5), row({4}, 6, 5), row({0, 4}, 6, 5), row({2, 3, 4}, 1, 1),
                      row({2, 3, 4}, 5, 1), row({3, 17}, 67, 9), row({5, 3}, 16, 8)},
             .large = row({160, 96}, 384, 96),
             .twice = true,
             .layout_bits = false,
             .tolerance = {.f32 = 1e-5, .f16 = 2e-2, .bf16 = 0.12},
             .flops = feed_forward_flops});
    };
    layers("feed_forward", "F.linear(F.linear(*x[:3]), *x[3:])", Activation::none);
    layers("feed_forward/relu", "F.linear(F.relu(F.linear(*x[:3])), *x[3:])", Activation::relu);
    layers("feed_forward/gelu", "F.linear(F.gelu(F.linear(*x[:3])), *x[3:])", Activation::gelu);
    layers("feed_forward/gelu_tanh",
           "F.linear(F.gelu(F.linear(*x[:3]), approximate='tanh'), *x[3:])", Activation::gelu_tanh);
    layers("feed_forward/silu", "F.linear(F.silu(F.linear(*x[:3])), *x[3:])", Activation::silu);
    cases.push_back(
        {.name = "feed_forward/no_bias",
         .torch = "F.linear(F.gelu(F.linear(*x[:2]), approximate='tanh'), x[2])",
         .call = [](In x) { return feed_forward(x[0], x[1], {}, x[2], {}, Activation::gelu_tanh); },
         .rows = {{floats({3, 4}), floats({6, 4}), floats({5, 6})}},
         .twice = true,
         .layout_bits = false,
         .tolerance = kSums});
    set_autocast(cases, Autocast::low, {"matmul", "linear", "feed_forward"});
    add_bad_matmul_calls(cases);
}

}  // namespace axle::tests
