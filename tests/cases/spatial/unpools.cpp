// Cases of lp_pool and max_unpool.
#include "core/ops.h"
#include "core/spatial.h"
#include "tests/cases/spatial/spatial_cases.h"

namespace axle::tests {

void add_norm_pool_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const char* torch, auto call,
                         std::vector<Shape> shapes) {
        std::vector<Row> rows;
        for (const Shape& shape : shapes) rows.push_back({floats(shape, 0.25, 2)});
        cases.push_back({.name = name,
                         .torch = str("F.", name.substr(0, name.find('/')), "(x[0], ", torch, ")"),
                         .call = [=](In x) { return call(x[0]); },
                         .rows = std::move(rows),
                         .twice = true,
                         .autocast = Autocast::f32});
    };
    using T = const Tensor&;
    const std::vector<Shape> signals = {{2, 3, 9}, {3, 7}, {0, 2, 8}, {2, 67}};
    const std::vector<Shape> images = {{2, 3, 5, 6}, {3, 4, 7}, {0, 2, 4, 4}, {1, 5, 19}};
    const std::vector<Shape> volumes = {{2, 2, 4, 5, 6}, {2, 4, 3, 5}, {0, 1, 4, 4, 4}};
    add(
        "lp_pool1d", "2, 3", [](T x) { return lp_pool1d(x, 2, 3); }, signals);
    add(
        "lp_pool1d/options", "2.5, 3, stride=2, ceil_mode=True",
        [](T x) { return lp_pool1d(x, 2.5, 3, {.stride = 2, .ceil_mode = true}); }, signals);
    add(
        "lp_pool2d", "2, 2", [](T x) { return lp_pool2d(x, 2, 2); }, images);
    add(
        "lp_pool2d/options", "3, (2, 3), stride=(1, 2), ceil_mode=True",
        [](T x) {
            return lp_pool2d(x, 3, {2, 3}, {.stride = Size2(1, 2), .ceil_mode = true});
        },
        images);
    add(
        "lp_pool3d", "2, 2", [](T x) { return lp_pool3d(x, 2, 2); }, volumes);
    add(
        "lp_pool3d/options", "1, (2, 3, 2), stride=(2, 2, 1), ceil_mode=True",
        [](T x) {
            return lp_pool3d(x, 1, {2, 3, 2}, {.stride = Size3(2, 2, 1), .ceil_mode = true});
        },
        volumes);
    for (const auto& [op, call, shape] :
         {std::tuple<const char*, void (*)(T, double, int), Shape>{
              "lp_pool1d", [](T x, double p, int n) { lp_pool1d(x, p, n); }, {2, 8}},
          {"lp_pool2d", [](T x, double p, int n) { lp_pool2d(x, p, n); }, {2, 8, 8}},
          {"lp_pool3d", [](T x, double p, int n) { lp_pool3d(x, p, n); }, {2, 8, 8, 8}}}) {
        refuses<UsageError>(cases, op, {}, [f = call] { f(Tensor(), 2, 2); });
        refuses<ShapeError>(cases, op, {"[8]"}, [f = call] { f(floats_of({8}), 2, 2); });
        refuses<ValueError>(cases, op, {"norm_type"},
                            [f = call, s = shape] { f(floats_of(s), 0, 2); });
        refuses<ValueError>(cases, op, {"the kernel"},
                            [f = call, s = shape] { f(floats_of(s), 2, 0); });
    }
}

namespace {

void add_bad_unpool_calls(Cases& cases) {
    using T = const Tensor&;
    for (const auto& [op, call, shape] :
         {std::tuple<const char*, void (*)(T, T, int), Shape>{
              "max_unpool1d", [](T x, T i, int n) { max_unpool1d(x, i, n); }, {2, 4}},
          {"max_unpool2d", [](T x, T i, int n) { max_unpool2d(x, i, n); }, {2, 4, 4}},
          {"max_unpool3d", [](T x, T i, int n) { max_unpool3d(x, i, n); }, {2, 4, 4, 4}}}) {
        const auto f = call;
        const Shape s = shape;
        refuses<UsageError>(cases, op, {}, [=] { f(Tensor(), ints_of(s), 2); });
        refuses<UsageError>(cases, op, {}, [=] { f(floats_of(s), Tensor(), 2); });
        refuses<ShapeError>(cases, op, {"[4]"}, [=] { f(floats_of({4}), ints_of({4}), 2); });
        refuses<ShapeError>(cases, op, {"indices", "[2]"},
                            [=] { f(floats_of(s), ints_of({2}), 2); });
        refuses<DTypeError>(cases, op, {"indices must be int64", "int32"},
                            [=] { f(floats_of(s), to(ints_of(s), i32), 2); });
        refuses<ValueError>(cases, op, {"the kernel"}, [=] { f(floats_of(s), ints_of(s), 0); });
        refuses<IndexError>(cases, op, {"9999"},
                            [=] { f(floats_of(s), full_like(ints_of(s), 9999), 2); });
    }
    refuses<ValueError>(cases, "max_unpool1d", {"output_size [6]", "[4]", "stride [2]"}, [] {
        max_unpool1d(floats_of({1, 2}), ints_of({1, 2}), 2, {.output_size = 6});
    });
    refuses<ValueError>(cases, "max_unpool2d", {"the size of the result", "[-1, 1]"}, [] {
        max_unpool2d(floats_of({1, 1, 1}), ints_of({1, 1, 1}), 1, {.padding = {1, 0}});
    });
}

}  // namespace

void add_unpool_cases(Cases& cases) {
    // The indices come from pools whose windows do not overlap, so no index is repeated.
    cases.push_back({.name = "max_unpool1d",
                     .torch = "F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2)",
                     .call =
                         [](In x) {
                             const auto [y, at] = max_pool1d_with_indices(x[0], 2);
                             return max_unpool1d(y, at, 2);
                         },
                     .rows = {{distinct({2, 3, 8})},
                              {distinct({3, 7})},
                              {distinct({0, 2, 6})},
                              {distinct({2, 67})}},
                     .twice = true});
    cases.push_back(
        {.name = "max_unpool1d/options",
         .torch = "F.max_unpool1d(*F.max_pool1d(x[0], 2, 3, 1, return_indices=True), 2, 3, 1, "
                  "x[0].shape[-1:])",
         .call =
             [](In x) {
                 const auto [y, at] = max_pool1d_with_indices(x[0], 2, {.stride = 3, .padding = 1});
                 return max_unpool1d(y, at, 2,
                                     {.stride = 3, .padding = 1, .output_size = x[0].size(-1)});
             },
         .rows = {{distinct({2, 3, 9})}, {distinct({3, 7})}},
         .twice = true});
    cases.push_back({.name = "max_unpool2d",
                     .torch = "F.max_unpool2d(*F.max_pool2d(x[0], (2, 3), return_indices=True), "
                              "(2, 3), output_size=x[0].shape[-2:])",
                     .call =
                         [](In x) {
                             const auto [y, at] = max_pool2d_with_indices(x[0], {2, 3});
                             return max_unpool2d(
                                 y, at, {2, 3},
                                 {.output_size = Size2(x[0].size(-2), x[0].size(-1))});
                         },
                     .rows = {{distinct({2, 3, 5, 6})},
                              {distinct({3, 4, 7})},
                              {distinct({0, 2, 4, 4})},
                              {distinct({1, 5, 19})}},
                     .twice = true});
    cases.push_back(
        {.name = "max_unpool3d",
         .torch = "F.max_unpool3d(*F.max_pool3d(x[0], (2, 1, 3), (2, 1, 4), (1, 0, 1), "
                  "return_indices=True), (2, 1, 3), (2, 1, 4), (1, 0, 1))",
         .call =
             [](In x) {
                 const Size3 stride = {2, 1, 4}, padding = {1, 0, 1};
                 const auto [y, at] = max_pool3d_with_indices(
                     x[0], {2, 1, 3}, {.stride = stride, .padding = padding});
                 return max_unpool3d(y, at, {2, 1, 3}, {.stride = stride, .padding = padding});
             },
         .rows = {{distinct({2, 2, 4, 3, 5})},
                  {distinct({2, 6, 3, 9})},
                  {distinct({0, 1, 4, 4, 5})}},
         .twice = true});
    add_bad_unpool_calls(cases);
}

}  // namespace axle::tests
