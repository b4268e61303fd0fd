// Cases of the convolutions of signals and volumes.
#include "core/ops.h"
#include "core/spatial.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Tolerances for sums of many products (see matmul.cpp).
const Tolerances kConvolutionSums = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};

Row filtered(const Shape& x, const Shape& w) { return {floats(x), floats(w), floats({w[0]})}; }
Row spread(const Shape& x, const Shape& w, std::int64_t groups = 1) {
    return {floats(x), floats(w), floats({w[1] * groups})};
}

// Adds a case of f(x, weight, bias, options).
template <class Options, class F>
void add_convolution(Cases& cases, const std::string& name, const char* torch_options, F f,
                     const Options& options, std::vector<Row> rows, Row large = {}) {
    const std::string op = name.substr(0, name.find('/'));
    cases.push_back({.name = name,
                     .torch = str("F.", op, "(*x", torch_options, ")"),
                     .call = [=](In x) { return f(x[0], x[1], x[2], options); },
                     .rows = std::move(rows),
                     .large = std::move(large),
                     .twice = true,
                     .tolerance = kConvolutionSums});
}

void add_signal_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const char* torch, const Conv1dOptions& options,
                         std::vector<Row> rows, Row large = {}) {
        add_convolution(cases, name, torch, conv1d, options, std::move(rows), std::move(large));
    };
    add("conv1d", "", {},
        {filtered({2, 3, 7}, {4, 3, 3}), filtered({3, 5}, {2, 3, 2}),
         filtered({0, 3, 5}, {4, 3, 3}), filtered({1, 1, 1}, {1, 1, 1}),
         filtered({2, 2, 37}, {5, 2, 4})},
        filtered({5, 32, 117}, {40, 32, 3}));
    add("conv1d/options", ", stride=2, padding=3, dilation=2, groups=2",
        {.stride = 2, .padding = 3, .dilation = 2, .groups = 2},
        {filtered({2, 4, 9}, {6, 2, 3}), filtered({2, 2}, {4, 1, 3})});
    const auto add_transpose = [&](const std::string& name, const char* torch,
                                   const ConvTranspose1dOptions& options, std::vector<Row> rows,
                                   Row large = {}) {
        add_convolution(cases, name, torch, conv_transpose1d, options, std::move(rows),
                        std::move(large));
    };
    add_transpose(
        "conv_transpose1d", "", {},
        {spread({2, 3, 7}, {3, 4, 3}), spread({3, 5}, {3, 2, 2}), spread({0, 3, 5}, {3, 4, 3}),
         spread({1, 1, 1}, {1, 1, 1}), spread({2, 2, 37}, {2, 5, 4})},
        spread({5, 32, 117}, {32, 40, 3}));
    add_transpose("conv_transpose1d/options",
                  ", stride=2, padding=1, output_padding=2, groups=2, dilation=3",
                  {.stride = 2, .padding = 1, .output_padding = 2, .groups = 2, .dilation = 3},
                  {spread({2, 4, 5}, {4, 3, 3}, 2)});
}

void add_volume_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const char* torch, const Conv3dOptions& options,
                         std::vector<Row> rows, Row large = {}) {
        add_convolution(cases, name, torch, conv3d, options, std::move(rows), std::move(large));
    };
    add("conv3d", "", {},
        {filtered({2, 3, 4, 5, 3}, {4, 3, 3, 2, 3}), filtered({2, 3, 3, 5}, {3, 2, 2, 3, 1}),
         filtered({0, 2, 4, 4, 3}, {3, 2, 2, 2, 2}), filtered({1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}),
         filtered({2, 2, 3, 2, 3}, {3, 2, 1, 1, 1})},
        filtered({2, 16, 9, 17, 19}, {20, 16, 3, 3, 3}));
    add("conv3d/stride", ", stride=(2, 1, 3), padding=(2, 1, 0)",
        {.stride = {2, 1, 3}, .padding = {2, 1, 0}},
        {filtered({2, 2, 5, 3, 7}, {3, 2, 2, 3, 2}), filtered({1, 2, 1, 3, 4}, {2, 2, 3, 1, 2})});
    // The first and the last output frames do not overlap x.
    add("conv3d/wide_padding", ", padding=(4, 1, 2), dilation=(3, 1, 2)",
        {.padding = {4, 1, 2}, .dilation = {3, 1, 2}},
        {filtered({2, 2, 2, 3, 3}, {2, 2, 2, 2, 2})});
    add("conv3d/groups", ", padding=1, groups=2", {.padding = 1, .groups = 2},
        {filtered({2, 4, 3, 3, 4}, {6, 2, 3, 3, 2}), filtered({2, 2, 3, 4, 3}, {4, 1, 2, 3, 2})});
    cases.push_back({.name = "conv3d/no_bias",
                     .torch = "F.conv3d(*x, padding=1)",
                     .call = [](In x) { return conv3d(x[0], x[1], {}, {.padding = 1}); },
                     .rows = {{floats({2, 3, 2, 4, 5}), floats({4, 3, 3, 3, 3})}},
                     .twice = true,
                     .tolerance = kConvolutionSums});
}

void add_transposed_volume_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const char* torch,
                         const ConvTranspose3dOptions& options, std::vector<Row> rows,
                         Row large = {}) {
        add_convolution(cases, name, torch, conv_transpose3d, options, std::move(rows),
                        std::move(large));
    };
    add("conv_transpose3d", "", {},
        {spread({2, 3, 3, 4, 3}, {3, 4, 2, 3, 2}), spread({2, 3, 3, 5}, {2, 3, 3, 2, 1}),
         spread({0, 2, 3, 3, 2}, {2, 3, 2, 2, 2}), spread({1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}),
         spread({2, 2, 3, 2, 3}, {2, 3, 1, 1, 1})},
        spread({2, 16, 7, 15, 17}, {16, 20, 3, 3, 3}));
    add("conv_transpose3d/stride",
        ", stride=(3, 2, 1), padding=(1, 2, 0), output_padding=(2, 1, 0)",
        {.stride = {3, 2, 1}, .padding = {1, 2, 0}, .output_padding = {2, 1, 0}},
        {spread({2, 2, 2, 3, 3}, {2, 3, 2, 4, 2}), spread({1, 2, 1, 3, 2}, {2, 2, 3, 5, 1})});
    add("conv_transpose3d/groups", ", stride=2, padding=1, output_padding=2, groups=2, dilation=3",
        {.stride = 2, .padding = 1, .output_padding = 2, .groups = 2, .dilation = 3},
        {spread({1, 4, 2, 3, 2}, {4, 3, 2, 2, 3}, 2)});
    cases.push_back({.name = "conv_transpose3d/no_bias",
                     .torch = "F.conv_transpose3d(*x, padding=1)",
                     .call = [](In x) { return conv_transpose3d(x[0], x[1], {}, {.padding = 1}); },
                     .rows = {{floats({2, 3, 2, 3, 4}), floats({3, 2, 3, 2, 3})}},
                     .twice = true,
                     .tolerance = kConvolutionSums});
}

void add_bad_signal_calls(Cases& cases) {
    const auto f = floats_of;
    for (const auto& [op, call] :
         {std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>{
              "conv1d", [](const Tensor& x, const Tensor& w) { return conv1d(x, w); }},
          {"conv_transpose1d",
           [](const Tensor& x, const Tensor& w) { return conv_transpose1d(x, w); }}}) {
        refuses<UsageError>(cases, op, {}, [=] { call(Tensor(), f({3, 3, 3})); });
        refuses<UsageError>(cases, op, {}, [=] { call(f({2, 3, 8}), Tensor()); });
        refuses<ShapeError>(cases, op, {"[N, C, L] or [C, L]", "[8]", "[4, 3, 3]"}, [=] {
            call(f({8}), f({4, 3, 3}));
        });
        refuses<ShapeError>(cases, op, {"weight must have 3 dimensions", "[4, 3]"}, [=] {
            call(f({2, 3, 8}), f({4, 3}));
        });
        refuses<ShapeError>(cases, op, {"5 channels", "[2, 3, 8]"}, [=] {
            call(f({2, 3, 8}), f({5, 5, 3}));
        });
        refuses<DTypeError>(cases, op, {"float64"}, [=] {
            call(f({2, 3, 8}), to(f({3, 3, 3}), f64));
        });
    }
    refuses<ShapeError>(cases, "conv1d", {"larger than the padded input", "padding [1]"}, [=] {
        conv1d(f({2, 3, 3}), f({4, 3, 6}), {}, {.padding = 1});
    });
    refuses<ValueError>(cases, "conv1d", {"stride must be from 1", "[0]"}, [=] {
        conv1d(f({2, 3, 3}), f({4, 3, 1}), {}, {.stride = 0});
    });
    refuses<ValueError>(cases, "conv_transpose1d", {"output_padding [2]", "stride [2]"}, [=] {
        conv_transpose1d(f({2, 3, 3}), f({3, 4, 1}), {}, {.stride = 2, .output_padding = 2});
    });
}

void add_bad_volume_calls(Cases& cases) {
    const auto f = floats_of;
    for (const auto& [op, call] :
         {std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>{
              "conv3d",
              [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv3d(x, w, b); }},
          {"conv_transpose3d", [](const Tensor& x, const Tensor& w, const Tensor& b) {
               return conv_transpose3d(x, w, b);
           }}}) {
        const Tensor none;
        refuses<UsageError>(cases, op, {}, [=] { call(none, f({3, 3, 1, 1, 1}), none); });
        refuses<UsageError>(cases, op, {}, [=] { call(f({3, 4, 4, 4}), none, none); });
        refuses<ShapeError>(cases, op, {"[N, C, D, H, W] or [C, D, H, W]", "[3, 8, 8]"}, [=] {
            call(f({3, 8, 8}), f({3, 3, 1, 1, 1}), none);
        });
        refuses<ShapeError>(cases, op, {"5 channels", "[2, 3, 4, 4, 4]"}, [=] {
            call(f({2, 3, 4, 4, 4}), f({5, 5, 3, 3, 3}), none);
        });
        refuses<ShapeError>(cases, op, {"bias must be [3]", "[2]"}, [=] {
            call(f({3, 4, 4, 4}), f({3, 3, 1, 1, 1}), f({2}));
        });
        refuses<ShapeError>(cases, op, {"images must not be empty", "[3, 0, 4, 4]"}, [=] {
            call(f({3, 0, 4, 4}), f({3, 3, 1, 1, 1}), none);
        });
    }
    refuses<ShapeError>(
        cases, "conv3d", {"larger than the padded input", "dilation [4, 1, 1]"}, [=] {
            conv3d(f({2, 3, 4, 3, 3}), f({4, 3, 2, 1, 1}), {}, {.dilation = {4, 1, 1}});
        });
    refuses<ShapeError>(cases, "conv3d", {"at most 2^40 pixels"}, [=] {
        conv3d(f({1, 1, 1, 1}), f({1, 1, 1, 1, 1}), {}, {.padding = {1 << 15, 1 << 15, 1 << 15}});
    });
    refuses<ValueError>(cases, "conv3d", {"padding must be from 0", "[0, -1, 0]"}, [=] {
        conv3d(f({1, 1, 1, 1}), f({1, 1, 1, 1, 1}), {}, {.padding = {0, -1, 0}});
    });
    refuses<ShapeError>(cases, "conv_transpose3d", {"would be empty", "[1, 1, 1, 1]"}, [=] {
        conv_transpose3d(f({1, 1, 1, 1}), f({1, 1, 1, 1, 1}), {}, {.padding = {0, 0, 1}});
    });
}

}  // namespace

void add_convolutions_cases(Cases& cases) {
    add_signal_cases(cases);
    add_volume_cases(cases);
    add_transposed_volume_cases(cases);
    add_bad_signal_calls(cases);
    add_bad_volume_calls(cases);
    set_autocast(cases, Autocast::low,
                 {"conv1d", "conv3d", "conv_transpose1d", "conv_transpose3d"});
}

}  // namespace axle::tests
