// Cases of the pools of signals and volumes.
#include "core/ops.h"
#include "core/spatial.h"
#include "tests/cases/spatial/spatial_cases.h"

namespace axle::tests {

namespace {

// Return rows in which all values differ. The small steps of finite differences do not change which
// element is the maximum.
std::vector<Row> signals() {
    return {{distinct({2, 3, 9})}, {distinct({3, 7})}, {distinct({0, 2, 8})}, {distinct({2, 67})}};
}
std::vector<Row> volumes() {
    return {{distinct({2, 2, 5, 6, 7})},
            {distinct({2, 4, 5, 6})},
            {distinct({0, 2, 4, 5, 4})},
            {distinct({1, 1, 5, 4, 19})}};
}
Row large_signals() { return {distinct({3, 7, 65 * 67})}; }
Row large_volumes() { return {distinct({2, 5, 17, 31, 33})}; }

// Adds cases of a pool and of the pool with indices.
template <class Size, class Options>
void add_max_pool(Cases& cases, const char* op, const char* variant, const char* torch, Size kernel,
                  const Options& options, Tensor (*pool)(const Tensor&, Size, const Options&),
                  std::pair<Tensor, Tensor> (*with_indices)(const Tensor&, Size, const Options&),
                  const std::vector<Row>& rows, const Row& large) {
    cases.push_back({.name = str(op, variant),
                     .torch = str("F.", op, "(x[0], ", torch, ")"),
                     .call = [=](In x) { return pool(x[0], kernel, options); },
                     .rows = rows,
                     .large = large,
                     .twice = true});
    cases.push_back({.name = str(op, "_with_indices", variant),
                     .torch = str("F.", op, "(x[0], ", torch, ", return_indices=True)"),
                     .call = [=](In x) { return with_indices(x[0], kernel, options); },
                     .rows = rows,
                     .large = large,
                     .twice = true});
}

void add_max_pools(Cases& cases) {
    const auto signal = [&](const char* variant, const char* torch, std::int64_t kernel,
                            const MaxPool1dOptions& options) {
        add_max_pool(cases, "max_pool1d", variant, torch, kernel, options, max_pool1d,
                     max_pool1d_with_indices, signals(), large_signals());
    };
    signal("", "2", 2, {});
    signal("/options", "3, stride=2, padding=1, dilation=2, ceil_mode=True", 3,
           {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true});
    const auto volume = [&](const char* variant, const char* torch, Size3 kernel,
                            const MaxPool3dOptions& options) {
        add_max_pool(cases, "max_pool3d", variant, torch, kernel, options, max_pool3d,
                     max_pool3d_with_indices, volumes(), large_volumes());
    };
    volume("", "2", 2, {});
    volume("/overlap", "(3, 2, 3), stride=(1, 2, 1), padding=1", {3, 2, 3},
           {.stride = Size3(1, 2, 1), .padding = 1});
    volume("/dilation", "(2, 3, 2), stride=(2, 1, 2), padding=(0, 1, 1), dilation=(3, 1, 2)",
           {2, 3, 2}, {.stride = Size3(2, 1, 2), .padding = {0, 1, 1}, .dilation = {3, 1, 2}});
    volume("/ceil", "(3, 1, 2), stride=2, padding=(1, 0, 1), ceil_mode=True", {3, 1, 2},
           {.stride = 2, .padding = {1, 0, 1}, .ceil_mode = true});
    // The op must return the first of equal maxima, and the last NaN.
    for (const std::int64_t stride : {1, 2}) {
        const auto call = [=](In x) {
            return max_pool3d_with_indices(x[0], {2, 3, 2}, {.stride = stride});
        };
        const std::string torch =
            str("F.max_pool3d(x[0], (2, 3, 2), ", stride, ", return_indices=True)");
        cases.push_back({.name = str("max_pool3d_with_indices/ties", stride),
                         .torch = torch,
                         .call = call,
                         .rows = {{ties({2, 2, 5, 6, 7})}},
                         .smooth = false});
        cases.push_back({.name = str("max_pool3d_with_indices/specials", stride),
                         .torch = torch,
                         .call = call,
                         .rows = {{specials({2, 4, 5, 7})}},
                         .gradient = false});
    }
}

void add_integer_pools(Cases& cases) {
    const auto add = [&](const char* name, const char* torch, auto call, std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return call(x[0]); },
                         .rows = std::move(rows),
                         .gradient = false});
    };
    using T = const Tensor&;
    add("max_pool1d_with_indices/ints", "F.max_pool1d(x[0], 3, 2, 1, return_indices=True)",
        [](T x) { return max_pool1d_with_indices(x, 3, {.stride = 2, .padding = 1}); },
        {{ints({2, 3, 9}, -9, 9)}, {ints({3, 37}, -9, 9, i32)}, {ints({2, 7}, 0, 3, u8)}});
    const std::vector<Row> planes = {{ints({2, 3, 7, 9}, -9, 9)},
                                     {ints({3, 5, 6}, 0, 3, u8)},
                                     {ints({0, 2, 5, 5}, -9, 9)},
                                     {ints({2, 5, 37}, -9, 9, i32)}};
    add(
        "max_pool2d/ints", "F.max_pool2d(x[0], 2)", [](T x) { return max_pool2d(x, 2); }, planes);
    add(
        "max_pool2d_with_indices/ints",
        "F.max_pool2d(x[0], (2, 3), (1, 2), 1, (2, 1), ceil_mode=True, return_indices=True)",
        [](T x) {
            return max_pool2d_with_indices(
                x, {2, 3},
                {.stride = Size2(1, 2), .padding = 1, .dilation = {2, 1}, .ceil_mode = true});
        },
        planes);
    add("max_pool3d_with_indices/ints",
        "F.max_pool3d(x[0], (2, 3, 2), 2, (1, 1, 0), return_indices=True)",
        [](T x) {
            return max_pool3d_with_indices(x, {2, 3, 2}, {.stride = 2, .padding = {1, 1, 0}});
        },
        {{ints({2, 2, 3, 5, 6}, -9, 9)}, {ints({2, 3, 5, 6}, 0, 3, u8)}});
}

void add_mean_pools(Cases& cases) {
    const auto signal = [&](const char* variant, const char* torch, std::int64_t kernel,
                            const AvgPool1dOptions& options) {
        cases.push_back({.name = str("avg_pool1d", variant),
                         .torch = str("F.avg_pool1d(x[0], ", torch, ")"),
                         .call = [=](In x) { return avg_pool1d(x[0], kernel, options); },
                         .rows = signals(),
                         .large = large_signals(),
                         .twice = true});
    };
    signal("", "3", 3, {});
    signal("/options", "4, stride=3, padding=2, ceil_mode=True, count_include_pad=False", 4,
           {.stride = 3, .padding = 2, .ceil_mode = true, .count_include_pad = false});
    const auto volume = [&](const char* variant, const char* torch, Size3 kernel,
                            const AvgPool3dOptions& options) {
        cases.push_back({.name = str("avg_pool3d", variant),
                         .torch = str("F.avg_pool3d(x[0], ", torch, ")"),
                         .call = [=](In x) { return avg_pool3d(x[0], kernel, options); },
                         .rows = volumes(),
                         .large = large_volumes(),
                         .twice = true});
    };
    volume("", "2", 2, {});
    volume("/padding", "(3, 2, 3), stride=(1, 2, 2), padding=1", {3, 2, 3},
           {.stride = Size3(1, 2, 2), .padding = 1});
    volume("/ceil", "(3, 2, 4), stride=(2, 3, 3), padding=(1, 1, 2), ceil_mode=True", {3, 2, 4},
           {.stride = Size3(2, 3, 3), .padding = {1, 1, 2}, .ceil_mode = true});
    volume("/without_padding", "3, stride=2, padding=1, ceil_mode=True, count_include_pad=False", 3,
           {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
    volume("/divisor", "(2, 3, 2), padding=1, divisor_override=5", {2, 3, 2},
           {.padding = 1, .divisor_override = 5});
}

void add_adaptive_signal_pools(Cases& cases) {
    // The cases have parts of different sizes, one part, and more parts than elements.
    for (const std::int64_t size : {4, 1, 13}) {
        const auto add = [&](const char* op, const char* function, const char* option, auto f) {
            cases.push_back({.name = size == 4 ? str(op) : str(op, "/", size),
                             .torch = str("F.", function, "(x[0], ", size, option, ")"),
                             .call = [=](In x) { return f(x[0], size); },
                             .rows = signals(),
                             .large = large_signals(),
                             .twice = true});
        };
        add("adaptive_avg_pool1d", "adaptive_avg_pool1d", "", adaptive_avg_pool1d);
        add("adaptive_max_pool1d", "adaptive_max_pool1d", "", adaptive_max_pool1d);
        add("adaptive_max_pool1d_with_indices", "adaptive_max_pool1d", ", return_indices=True",
            adaptive_max_pool1d_with_indices);
    }
}

void add_adaptive_volume_pools(Cases& cases) {
    struct Variant {
        const char *name, *torch;
        Size3 size;
    };
    for (const auto& [variant, torch, size] :
         {Variant{"", "(3, 2, 4)", {3, 2, 4}}, Variant{"/global", "1", 1},
          Variant{"/more", "(2, 9, 8)", {2, 9, 8}}}) {
        const auto add = [&](const char* op, const char* function, const char* option, auto f) {
            cases.push_back({.name = str(op, variant),
                             .torch = str("F.", function, "(x[0], ", torch, option, ")"),
                             .call = [f, to = size](In x) { return f(x[0], to); },
                             .rows = volumes(),
                             .large = large_volumes(),
                             .twice = true});
        };
        add("adaptive_avg_pool3d", "adaptive_avg_pool3d", "", adaptive_avg_pool3d);
        add("adaptive_max_pool3d", "adaptive_max_pool3d", "", adaptive_max_pool3d);
        add("adaptive_max_pool3d_with_indices", "adaptive_max_pool3d", ", return_indices=True",
            adaptive_max_pool3d_with_indices);
    }
}

void add_bad_pool_calls(Cases& cases) {
    const auto bad = [&](const char* op, int spatial, auto call) {
        const Shape one = spatial == 1 ? Shape{4} : Shape{4, 4, 4};
        const Shape empty = spatial == 1 ? Shape{2, 0, 4} : Shape{2, 3, 4, 0, 4};
        const char* form = spatial == 1 ? "[N, C, L] or [C, L]" : "[N, C, D, H, W]";
        refuses<UsageError>(cases, op, {}, [=] { call(Tensor(), 2); });
        refuses<ShapeError>(cases, op, {form, str(one)}, [=] { call(floats_of(one), 2); });
        refuses<ShapeError>(cases, op, {form, str(empty)}, [=] { call(floats_of(empty), 2); });
        refuses<DTypeError>(cases, op, {"bool"}, [=] {
            call(bools_of(spatial == 1 ? Shape{2, 4} : Shape{2, 4, 4, 4}), 2);
        });
        refuses<ValueError>(cases, op, {"must be positive", "0"}, [=] {
            call(floats_of(spatial == 1 ? Shape{2, 4} : Shape{2, 4, 4, 4}), 0);
        });
    };
    using Tensors = const Tensor&;
    bad("max_pool1d", 1, [](Tensors x, int n) { max_pool1d(x, n); });
    bad("max_pool1d_with_indices", 1, [](Tensors x, int n) { max_pool1d_with_indices(x, n); });
    bad("avg_pool1d", 1, [](Tensors x, int n) { avg_pool1d(x, n); });
    bad("adaptive_avg_pool1d", 1, [](Tensors x, int n) { adaptive_avg_pool1d(x, n); });
    bad("adaptive_max_pool1d", 1, [](Tensors x, int n) { adaptive_max_pool1d(x, n); });
    bad("adaptive_max_pool1d_with_indices", 1,
        [](Tensors x, int n) { adaptive_max_pool1d_with_indices(x, n); });
    bad("max_pool3d", 3, [](Tensors x, int n) { max_pool3d(x, n); });
    bad("max_pool3d_with_indices", 3, [](Tensors x, int n) { max_pool3d_with_indices(x, n); });
    bad("avg_pool3d", 3, [](Tensors x, int n) { avg_pool3d(x, n); });
    bad("adaptive_avg_pool3d", 3, [](Tensors x, int n) { adaptive_avg_pool3d(x, n); });
    bad("adaptive_max_pool3d", 3, [](Tensors x, int n) { adaptive_max_pool3d(x, n); });
    bad("adaptive_max_pool3d_with_indices", 3,
        [](Tensors x, int n) { adaptive_max_pool3d_with_indices(x, n); });

    const Tensor x = floats_of({2, 4, 4, 4});
    refuses<ShapeError>(cases, "max_pool1d", {"the kernel [5]", "[2, 4]"}, [] {
        max_pool1d(floats_of({2, 4}), 5);
    });
    refuses<ValueError>(cases, "max_pool1d", {"at most half", "padding [2]"}, [] {
        max_pool1d(floats_of({2, 4}), 3, {.padding = 2});
    });
    refuses<ShapeError>(cases, "max_pool3d", {"the kernel [1, 5, 1]", "[2, 4, 4, 4]"}, [=] {
        max_pool3d(x, {1, 5, 1});
    });
    refuses<ValueError>(cases, "max_pool3d", {"the dilation", "[1, 0, 1]"}, [=] {
        max_pool3d(x, 2, {.dilation = {1, 0, 1}});
    });
    refuses<ValueError>(cases, "avg_pool3d", {"at most half", "[0, 0, 2]"}, [=] {
        avg_pool3d(x, 3, {.padding = {0, 0, 2}});
    });
    refuses<ValueError>(cases, "avg_pool3d", {"divisor_override"},
                        [=] { avg_pool3d(x, 2, {.divisor_override = 0}); });
}

}  // namespace

void add_pools_cases(Cases& cases) {
    add_max_pools(cases);
    add_integer_pools(cases);
    add_mean_pools(cases);
    add_adaptive_signal_pools(cases);
    add_adaptive_volume_pools(cases);
    add_bad_pool_calls(cases);
    add_norm_pool_cases(cases);
    add_unpool_cases(cases);
    add_fractional_pool_cases(cases);
}

}  // namespace axle::tests
