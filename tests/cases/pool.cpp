#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Returns planes in which all values differ. The small steps of finite differences do not change
// which element is the maximum.
std::vector<Row> planes() {
    return {{distinct({2, 3, 7, 9})},
            {distinct({3, 5, 6})},
            {distinct({0, 2, 4, 5})},
            {distinct({1, 2, 9, 67})}};
}
Row large_planes() { return {distinct({3, 7, 65, 67})}; }

struct MaxVariant {
    const char* name;
    const char* torch;  // PyTorch's arguments after x[0]
    Size2 kernel;
    MaxPoolOptions options = {};
};

const std::vector<MaxVariant>& max_variants() {
    static const std::vector<MaxVariant> variants = {
        {"", "2", 2},
        {"/stride", "3, stride=2, padding=1", 3, {.stride = 2, .padding = 1}},
        {"/overlap", "3, stride=1, padding=1", 3, {.stride = 1, .padding = 1}},
        {"/dilation",
         "(2, 3), stride=(1, 2), padding=1, dilation=2",
         {2, 3},
         {.stride = Size2(1, 2), .padding = 1, .dilation = 2}},
        {"/ceil",
         "3, stride=2, padding=1, ceil_mode=True",
         3,
         {.stride = 2, .padding = 1, .ceil_mode = true}},
        {"/apart",
         "(1, 2), stride=(2, 3), ceil_mode=True",
         {1, 2},
         {.stride = Size2(2, 3), .ceil_mode = true}},
    };
    return variants;
}

void add_max_cases(Cases& cases) {
    for (const auto& [variant, torch, kernel, options] : max_variants()) {
        cases.push_back(
            {.name = str("max_pool2d", variant),
             .torch = str("F.max_pool2d(x[0], ", torch, ")"),
             .call = [=, k = kernel, o = options](In x) { return max_pool2d(x[0], k, o); },
             .rows = planes(),
             .large = large_planes(),
             .twice = true});
        cases.push_back({.name = str("max_pool2d_with_indices", variant),
                         .torch = str("F.max_pool2d(x[0], ", torch, ", return_indices=True)"),
                         .call = [=, k = kernel, o = options](
                                     In x) { return max_pool2d_with_indices(x[0], k, o); },
                         .rows = planes(),
                         .large = large_planes(),
                         .twice = true});
    }
    // The op must return the first of equal maxima, and the last NaN.
    for (const int stride : {1, 2, 3}) {
        cases.push_back(
            {.name = str("max_pool2d_with_indices/ties", stride),
             .torch = str("F.max_pool2d(x[0], 3, ", stride, ", return_indices=True)"),
             .call = [=](In x) { return max_pool2d_with_indices(x[0], 3, {.stride = stride}); },
             .rows = {{ties({2, 3, 7, 9})}, {ties({1, 2, 9, 67})}},
             .smooth = false});
        cases.push_back(
            {.name = str("max_pool2d_with_indices/specials", stride),
             .torch = str("F.max_pool2d(x[0], 3, ", stride, ", return_indices=True)"),
             .call = [=](In x) { return max_pool2d_with_indices(x[0], 3, {.stride = stride}); },
             .rows = {{specials({2, 3, 7, 9})}, {specials({1, 2, 9, 67})}},
             .gradient = false});
    }
}

void add_mean_cases(Cases& cases) {
    const auto add = [&](const char* variant, const char* torch, Size2 kernel,
                         AvgPoolOptions options) {
        cases.push_back({.name = str("avg_pool2d", variant),
                         .torch = str("F.avg_pool2d(x[0], ", torch, ")"),
                         .call = [=](In x) { return avg_pool2d(x[0], kernel, options); },
                         .rows = planes(),
                         .large = large_planes(),
                         .twice = true});
    };
    add("", "2", 2, {});
    add("/padding", "3, stride=2, padding=1", 3, {.stride = 2, .padding = 1});
    add("/without_padding", "3, stride=2, padding=1, count_include_pad=False", 3,
        {.stride = 2, .padding = 1, .count_include_pad = false});
    add("/overlap", "(3, 2), stride=1, padding=(1, 0)", {3, 2},
        {.stride = 1, .padding = Size2(1, 0)});
    add("/ceil", "3, stride=2, padding=1, ceil_mode=True", 3,
        {.stride = 2, .padding = 1, .ceil_mode = true});
    add("/ceil_without_padding",
        "(2, 3), stride=3, padding=1, ceil_mode=True, count_include_pad=False", {2, 3},
        {.stride = 3, .padding = 1, .ceil_mode = true, .count_include_pad = false});
    add("/divisor", "(2, 3), padding=1, divisor_override=5", {2, 3},
        {.padding = 1, .divisor_override = 5});
}

void add_adaptive_cases(Cases& cases) {
    struct AdaptiveCase {
        const char *name, *torch;
        Size2 size;
    };
    // The cases have parts of equal size, parts of different sizes, and more parts than elements.
    for (const auto& [variant, torch, size] :
         {AdaptiveCase{"", "(3, 2)", {3, 2}}, AdaptiveCase{"/global", "1", 1},
          AdaptiveCase{"/even", "(1, 3)", {1, 3}}, AdaptiveCase{"/more", "(11, 70)", {11, 70}}}) {
        const auto add = [&](const char* name, const char* function, const char* option, auto f) {
            cases.push_back({.name = str(name, variant),
                             .torch = str(function, "(x[0], ", torch, option, ")"),
                             .call = [f, to = size](In x) { return f(x[0], to); },
                             .rows = planes(),
                             .large = large_planes(),
                             .twice = true});
        };
        add("adaptive_avg_pool2d", "F.adaptive_avg_pool2d", "", adaptive_avg_pool2d);
        add("adaptive_max_pool2d", "F.adaptive_max_pool2d", "", adaptive_max_pool2d);
        add("adaptive_max_pool2d_with_indices", "F.adaptive_max_pool2d", ", return_indices=True",
            adaptive_max_pool2d_with_indices);
    }
}

}  // namespace

void add_pool_cases(Cases& cases) {
    add_max_cases(cases);
    add_mean_cases(cases);
    add_adaptive_cases(cases);
}

}  // namespace axle::tests
