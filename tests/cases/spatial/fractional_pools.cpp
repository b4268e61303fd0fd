// Cases of fractional max pooling. The random numbers are multiples of 1/8, and the distances of
// the windows are multiples of 1/4. Therefore the windows are the same in all dtypes.
#include "core/ops.h"
#include "core/spatial.h"
#include "tests/cases/spatial/spatial_cases.h"

namespace axle::tests {

namespace {

// Returns `spatial` numbers for each plane of x. All numbers together are 0, 3/8, 6/8, 1/8, ... in
// row-major order.
Tensor samples_for(const Tensor& x, int spatial) {
    const std::int64_t n = x.dim() == spatial + 2 ? x.size(0) : 1, c = x.size(-spatial - 1);
    const Tensor all = arange(n * c * spatial, {.dtype = i64, .device = x.device()});
    const Tensor eighths = remainder(all * 3, full({}, 8, {i64, x.device()}));
    return reshape(to(eighths, x.dtype()) / 8, {n, c, spatial});
}

FractionalMaxPool2dOptions with_samples(FractionalMaxPool2dOptions options, const Tensor& x) {
    options.random_samples = samples_for(x, 2);
    return options;
}
FractionalMaxPool3dOptions with_samples(FractionalMaxPool3dOptions options, const Tensor& x) {
    options.random_samples = samples_for(x, 3);
    return options;
}

template <class Size, class Options>
void add_fractional(Cases& cases, const char* op, const char* variant, const char* torch,
                    Size kernel, const Options& options,
                    Tensor (*pool)(const Tensor&, Size, const Options&),
                    std::pair<Tensor, Tensor> (*with_indices)(const Tensor&, Size, const Options&),
                    const std::vector<Row>& rows) {
    cases.push_back({.name = str(op, variant),
                     .torch = str("fractional_pool(F.", op, ", x[0], ", torch, ")"),
                     .call = [=](In x) { return pool(x[0], kernel, with_samples(options, x[0])); },
                     .rows = rows,
                     .twice = true});
    cases.push_back(
        {.name = str(op, "_with_indices", variant),
         .torch = str("fractional_pool(F.", op, ", x[0], ", torch, ", return_indices=True)"),
         .call = [=](In x) { return with_indices(x[0], kernel, with_samples(options, x[0])); },
         .rows = rows,
         .twice = true});
}

void add_bad_fractional_calls(Cases& cases) {
    const auto planes = [&](const char* op, auto call) {
        const FractionalMaxPool2dOptions two = {.output_size = 2};
        const Tensor x = floats_of({2, 5, 6});
        refuses<UsageError>(cases, op, {}, [=] { call(Tensor(), 2, two); });
        refuses<ShapeError>(cases, op, {"[5, 6]"}, [=] { call(floats_of({5, 6}), 2, two); });
        refuses<DTypeError>(cases, op, {"int64"}, [=] { call(ints_of({2, 5, 6}), 2, two); });
        refuses<ValueError>(cases, op, {"neither"}, [=] { call(x, 2, {}); });
        refuses<ValueError>(cases, op, {"both"},
                            [=] { call(x, 2, {.output_size = 2, .output_ratio = 0.5}); });
        refuses<ValueError>(cases, op, {"output_ratio", "1"},
                            [=] { call(x, 2, {.output_ratio = 1}); });
        refuses<ValueError>(cases, op, {"the size", "[0, 2]"},
                            [=] { call(x, 2, {.output_size = Size2(0, 2)}); });
        refuses<ValueError>(cases, op, {"the kernel", "[0, 0]"}, [=] { call(x, 0, two); });
        refuses<ShapeError>(cases, op, {"[4, 1]", "[3, 2]", "[2, 5, 6]"}, [=] {
            call(x, {4, 1}, {.output_size = Size2(3, 2)});
        });
        refuses<ShapeError>(cases, op, {"random_samples must be [1, 2, 2]", "[2, 2]"}, [=] {
            call(x, 2, {.output_size = 2, .random_samples = floats_of({2, 2})});
        });
    };
    using Planes = const FractionalMaxPool2dOptions&;
    planes("fractional_max_pool2d",
           [](const Tensor& x, Size2 k, Planes o) { fractional_max_pool2d(x, k, o); });
    planes("fractional_max_pool2d_with_indices",
           [](const Tensor& x, Size2 k, Planes o) { fractional_max_pool2d_with_indices(x, k, o); });
    const auto volumes = [&](const char* op, auto call) {
        const Tensor x = floats_of({2, 4, 5, 6});
        refuses<UsageError>(cases, op, {}, [=] { call(Tensor(), {.output_size = 2}); });
        refuses<ShapeError>(cases, op, {"[5, 6]"}, [=] {
            call(floats_of({5, 6}), {.output_size = 2});
        });
        refuses<ValueError>(cases, op, {"neither"}, [=] { call(x, {}); });
        refuses<ValueError>(cases, op, {"output_ratio", "0"},
                            [=] { call(x, {.output_ratio = Scale3(0.5, 0, 0.5)}); });
        refuses<ShapeError>(cases, op, {"[2, 2, 2]", "[4, 2, 2]", "[2, 4, 5, 6]"},
                            [=] { call(x, {.output_size = Size3(4, 2, 2)}); });
    };
    using Volumes = const FractionalMaxPool3dOptions&;
    volumes("fractional_max_pool3d",
            [](const Tensor& x, Volumes o) { fractional_max_pool3d(x, 2, o); });
    volumes("fractional_max_pool3d_with_indices",
            [](const Tensor& x, Volumes o) { fractional_max_pool3d_with_indices(x, 2, o); });
}

}  // namespace

void add_fractional_pool_cases(Cases& cases) {
    const auto planes = [&](const char* variant, const char* torch, Size2 kernel,
                            const FractionalMaxPool2dOptions& options) {
        add_fractional(cases, "fractional_max_pool2d", variant, torch, kernel, options,
                       fractional_max_pool2d, fractional_max_pool2d_with_indices,
                       {{distinct({2, 3, 9, 10})},
                        {distinct({3, 6, 8})},
                        {distinct({0, 2, 7, 7})},
                        {distinct({1, 2, 9, 37})}});
    };
    planes("", "(2, 3), output_size=(5, 5)", {2, 3}, {.output_size = 5});
    planes("/global", "(3, 2), output_size=(1, 3)", {3, 2}, {.output_size = Size2(1, 3)});
    const auto volumes = [&](const char* variant, const char* torch, Size3 kernel,
                             const FractionalMaxPool3dOptions& options) {
        add_fractional(
            cases, "fractional_max_pool3d", variant, torch, kernel, options, fractional_max_pool3d,
            fractional_max_pool3d_with_indices,
            {{distinct({2, 2, 5, 9, 8})}, {distinct({2, 6, 9, 7})}, {distinct({0, 1, 5, 8, 7})}});
    };
    volumes("", "(2, 3, 2), output_size=(3, 5, 5)", {2, 3, 2}, {.output_size = Size3(3, 5, 5)});
    // The output size is [2, 3, 2].
    cases.push_back({.name = "fractional_max_pool3d/ratio",
                     .torch = "fractional_pool(F.fractional_max_pool3d, x[0], (2, 3, 2), "
                              "output_ratio=(0.5, 0.43, 0.25))",
                     .call =
                         [](In x) {
                             return fractional_max_pool3d(
                                 x[0], {2, 3, 2},
                                 with_samples(FractionalMaxPool3dOptions{.output_ratio = Scale3(
                                                                             0.5, 0.43, 0.25)},
                                              x[0]));
                         },
                     .rows = {{distinct({2, 2, 4, 7, 8})}},
                     .twice = true});
    cases.push_back(
        {.name = "fractional_max_pool2d/ratio",
         .torch = "fractional_pool(F.fractional_max_pool2d, x[0], (2, 3), output_ratio=(0.5, 0.5))",
         .call =
             [](In x) {
                 return fractional_max_pool2d(
                     x[0], {2, 3},
                     with_samples(FractionalMaxPool2dOptions{.output_ratio = 0.5}, x[0]));
             },
         .rows = {{distinct({2, 3, 10, 11})}},
         .twice = true});
    add_bad_fractional_calls(cases);
}

}  // namespace axle::tests
