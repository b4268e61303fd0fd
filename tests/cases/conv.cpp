#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Tolerances for sums of many products (see matmul.cpp).
const Tolerances kSums = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};

// Returns the number of operations of a convolution without stride and padding.
double conv_flops(In x) {
    const Tensor &images = x[0], &w = x[1];
    const std::int64_t pixels = (images.size(2) - w.size(2) + 1) * (images.size(3) - w.size(3) + 1);
    return 2.0 * static_cast<double>(images.size(0) * pixels) * static_cast<double>(w.numel());
}
// Returns the number of operations of a transposed convolution. It multiplies every element of x by
// every element of w with the same input channel.
double transposed_flops(In x) {
    const std::int64_t row = x[1].numel() / x[1].size(0);
    return 2.0 * static_cast<double>(x[0].numel() * row);
}

Row layer(const Shape& x, const Shape& w) { return {floats(x), floats(w), floats({w[0]})}; }
Row transposed_layer(const Shape& x, const Shape& w, std::int64_t groups = 1) {
    return {floats(x), floats(w), floats({w[1] * groups})};
}

void add_conv2d(Cases& cases) {
    const auto add = [&](std::string name, const char* torch_options, const Conv2dOptions& options,
                         std::vector<Row> rows, Row large = {}) {
        cases.push_back({.name = std::move(name),
                         .torch = str("F.conv2d(*x", torch_options, ")"),
                         .call = [=](In x) { return conv2d(x[0], x[1], x[2], options); },
                         .rows = std::move(rows),
                         .large = std::move(large),
                         .twice = true,
                         .tolerance = kSums,
                         .flops = conv_flops});
    };
    add("conv2d", "", {},
        {layer({2, 3, 5, 6}, {4, 3, 3, 3}), layer({3, 5, 4}, {2, 3, 2, 3}),
         layer({0, 3, 5, 5}, {4, 3, 3, 3}), layer({1, 1, 1, 1}, {1, 1, 1, 1}),
         layer({1, 3, 5, 9}, {7, 3, 5, 1}), layer({3, 2, 9, 9}, {17, 2, 2, 2})},
        layer({5, 32, 17, 19}, {40, 32, 3, 3}));
    add("conv2d/padding", ", padding=(1, 2)", {.padding = {1, 2}},
        {layer({2, 3, 4, 5}, {5, 3, 3, 3}), layer({1, 2, 1, 1}, {3, 2, 3, 5})});
    add("conv2d/wide_padding", ", padding=(3, 4)", {.padding = {3, 4}},
        {layer({2, 1, 2, 3}, {2, 1, 2, 1})});
    add("conv2d/stride", ", stride=(2, 3), padding=(1, 0)", {.stride = {2, 3}, .padding = {1, 0}},
        {layer({2, 3, 6, 8}, {4, 3, 3, 3}), layer({1, 3, 7, 7}, {2, 3, 1, 1})});
    add("conv2d/dilation", ", stride=(1, 2), padding=2, dilation=(2, 3)",
        {.stride = {1, 2}, .padding = 2, .dilation = {2, 3}}, {layer({2, 3, 6, 8}, {4, 3, 3, 3})});
    add("conv2d/groups", ", padding=1, groups=2", {.padding = 1, .groups = 2},
        {layer({2, 4, 5, 5}, {6, 2, 3, 3}), layer({2, 2, 4, 5}, {4, 1, 3, 2})});
    add("conv2d/depthwise", ", stride=2, padding=1, groups=5",
        {.stride = 2, .padding = 1, .groups = 5},
        {layer({2, 5, 6, 7}, {5, 1, 3, 3}), layer({1, 5, 3, 3}, {10, 1, 3, 3})});
    cases.push_back({.name = "conv2d/no_bias",
                     .torch = "F.conv2d(*x, padding=1)",
                     .call = [](In x) { return conv2d(x[0], x[1], {}, {.padding = 1}); },
                     .rows = {{floats({2, 3, 4, 5}), floats({4, 3, 3, 3})},
                              {floats({2, 4, 3, 3}), floats({5, 4, 1, 1})}},
                     .twice = true,
                     .tolerance = kSums});
}

void add_conv_transpose2d(Cases& cases) {
    const auto add = [&](std::string name, const char* torch_options,
                         const ConvTranspose2dOptions& options, std::vector<Row> rows,
                         Row large = {}) {
        cases.push_back({.name = std::move(name),
                         .torch = str("F.conv_transpose2d(*x", torch_options, ")"),
                         .call = [=](In x) { return conv_transpose2d(x[0], x[1], x[2], options); },
                         .rows = std::move(rows),
                         .large = std::move(large),
                         .twice = true,
                         .tolerance = kSums,
                         .flops = transposed_flops});
    };
    add("conv_transpose2d", "", {},
        {transposed_layer({2, 3, 4, 5}, {3, 4, 3, 3}), transposed_layer({3, 3, 4}, {3, 2, 2, 3}),
         transposed_layer({0, 3, 4, 4}, {3, 4, 3, 3}), transposed_layer({1, 1, 1, 1}, {1, 1, 1, 1}),
         transposed_layer({1, 3, 5, 9}, {3, 7, 2, 3})},
        transposed_layer({5, 32, 17, 19}, {32, 40, 3, 3}));
    add("conv_transpose2d/stride", ", stride=(2, 3), padding=(1, 2), output_padding=(1, 2)",
        {.stride = {2, 3}, .padding = {1, 2}, .output_padding = {1, 2}},
        {transposed_layer({2, 3, 3, 4}, {3, 4, 3, 5}),
         transposed_layer({1, 2, 4, 4}, {2, 3, 3, 5})});
    add("conv_transpose2d/gaps", ", stride=3", {.stride = 3},
        {transposed_layer({2, 3, 3, 2}, {3, 2, 2, 1})});
    add("conv_transpose2d/groups", ", stride=2, padding=1, output_padding=2, groups=2, dilation=3",
        {.stride = 2, .padding = 1, .output_padding = 2, .groups = 2, .dilation = 3},
        {transposed_layer({2, 4, 4, 3}, {4, 3, 3, 3}, 2)});
    cases.push_back({.name = "conv_transpose2d/no_bias",
                     .torch = "F.conv_transpose2d(*x, padding=1)",
                     .call = [](In x) { return conv_transpose2d(x[0], x[1], {}, {.padding = 1}); },
                     .rows = {{floats({2, 3, 4, 5}), floats({3, 2, 3, 3})}},
                     .twice = true,
                     .tolerance = kSums});
}

}  // namespace

void add_conv_cases(Cases& cases) {
    add_conv2d(cases);
    add_conv_transpose2d(cases);
    set_autocast(cases, Autocast::low, {"conv2d", "conv_transpose2d"});
}

}  // namespace axle::tests
