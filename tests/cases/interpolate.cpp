#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_resize_cases(Cases& cases) {
    const auto add_rows = [&](const std::string& variant, const char* torch,
                              const InterpolateOptions& options, std::vector<Row> rows) {
        cases.push_back({.name = "interpolate" + variant,
                         .torch = str("F.interpolate(x[0], ", torch, ")"),
                         .call = [=](In x) { return interpolate(x[0], options); },
                         .rows = std::move(rows),
                         .twice = true});
    };
    const auto add = [&](const std::string& variant, const char* torch,
                         const InterpolateOptions& options) {
        add_rows(variant, torch, options,
                 {{floats({2, 3, 7, 9})},
                  {floats({3, 1, 5, 6})},
                  {floats({0, 2, 4, 5})},
                  {floats({1, 2, 9, 67})},
                  {floats({1, 1, 1, 1})}});
        cases.back().large = {floats({3, 7, 65, 67})};
    };
    const auto add_signal = [&](const std::string& variant, const char* torch,
                                const InterpolateOptions& options) {
        add_rows(variant, torch, options,
                 {{floats({2, 3, 9})}, {floats({0, 2, 4})}, {floats({1, 2, 67})}});
    };
    const auto add_volume = [&](const std::string& variant, const char* torch,
                                const InterpolateOptions& options) {
        add_rows(variant, torch, options,
                 {{floats({2, 3, 4, 5, 3})}, {floats({0, 2, 3, 4, 2})}, {floats({1, 2, 3, 2, 7})}});
    };
    const auto bilinear = Interpolation::bilinear;
    add("", "size=(11, 26)", {.size = Size2(11, 26)});
    add("/down", "size=(5, 4)", {.size = Size2(5, 4)});
    add("/scale", "scale_factor=2", {.scale_factor = 2});
    add("/odd_scale", "scale_factor=(1.7, 3.3)", {.scale_factor = Scale2(1.7, 3.3)});
    add("/bilinear", "size=(11, 26), mode='bilinear'", {.size = Size2(11, 26), .mode = bilinear});
    add("/bilinear_down", "size=(5, 4), mode='bilinear'", {.size = Size2(5, 4), .mode = bilinear});
    add("/bilinear_same", "size=(7, 9), mode='bilinear'", {.size = Size2(7, 9), .mode = bilinear});
    add("/bilinear_scale", "scale_factor=2, mode='bilinear'",
        {.scale_factor = 2, .mode = bilinear});
    add("/bilinear_odd_scale", "scale_factor=(1.7, 3.3), mode='bilinear'",
        {.scale_factor = Scale2(1.7, 3.3), .mode = bilinear});
    add("/corners", "size=(11, 26), mode='bilinear', align_corners=True",
        {.size = Size2(11, 26), .mode = bilinear, .align_corners = true});
    add("/corners_down", "size=(1, 4), mode='bilinear', align_corners=True",
        {.size = Size2(1, 4), .mode = bilinear, .align_corners = true});
    add("/corners_scale", "scale_factor=2.5, mode='bilinear', align_corners=True",
        {.scale_factor = 2.5, .mode = bilinear, .align_corners = true});
    add("/recompute", "scale_factor=(1.7, 3.3), mode='bilinear', recompute_scale_factor=True",
        {.scale_factor = Scale2(1.7, 3.3), .mode = bilinear, .recompute_scale_factor = true});
    add("/recompute_nearest", "scale_factor=1.05, recompute_scale_factor=True",
        {.scale_factor = 1.05, .recompute_scale_factor = true});

    const auto exact = Interpolation::nearest_exact, area = Interpolation::area;
    add("/exact", "size=(11, 26), mode='nearest-exact'", {.size = Size2(11, 26), .mode = exact});
    add("/exact_down", "size=(3, 5), mode='nearest-exact'", {.size = Size2(3, 5), .mode = exact});
    add("/exact_scale", "scale_factor=(1.7, 1.05), mode='nearest-exact'",
        {.scale_factor = Scale2(1.7, 1.05), .mode = exact});
    add("/area", "size=(5, 13), mode='area'", {.size = Size2(5, 13), .mode = area});
    add("/area_scale", "scale_factor=1.4, mode='area'", {.scale_factor = 1.4, .mode = area});

    add_signal("/signal", "size=13", {.size = 13});
    add_signal("/signal_scale", "scale_factor=1.7", {.scale_factor = 1.7});
    add_signal("/signal_exact", "size=5, mode='nearest-exact'", {.size = 5, .mode = exact});
    add_signal("/signal_area", "size=5, mode='area'", {.size = 5, .mode = area});
    const auto linear = Interpolation::linear;
    add_signal("/linear", "size=13, mode='linear'", {.size = 13, .mode = linear});
    add_signal("/linear_scale", "scale_factor=0.7, mode='linear'",
               {.scale_factor = 0.7, .mode = linear});
    add_signal("/linear_corners", "size=13, mode='linear', align_corners=True",
               {.size = 13, .mode = linear, .align_corners = true});

    const auto trilinear = Interpolation::trilinear;
    using Size3 = PerDimension<std::int64_t>;
    using Scale3 = PerDimension<double>;
    add_volume("/volume", "size=(7, 3, 8)", {.size = Size3(7, 3, 8)});
    add_volume("/volume_exact", "scale_factor=(1.3, 0.8, 2.1), mode='nearest-exact'",
               {.scale_factor = Scale3(1.3, 0.8, 2.1), .mode = exact});
    add_volume("/volume_area", "size=(2, 5, 4), mode='area'",
               {.size = Size3(2, 5, 4), .mode = area});
    add_volume("/trilinear", "size=(7, 3, 8), mode='trilinear'",
               {.size = Size3(7, 3, 8), .mode = trilinear});
    add_volume("/trilinear_scale", "scale_factor=(1.3, 0.8, 2.1), mode='trilinear'",
               {.scale_factor = Scale3(1.3, 0.8, 2.1), .mode = trilinear});
    add_volume("/trilinear_corners", "size=5, mode='trilinear', align_corners=True",
               {.size = 5, .mode = trilinear, .align_corners = true});
}

// Adds cases of bicubic and antialiased resizing, which are products with matrices. The layout of
// the operands changes their last bits.
void add_resample_cases(Cases& cases) {
    const auto add = [&](const std::string& variant, const char* torch,
                         const InterpolateOptions& options) {
        cases.push_back({.name = "interpolate/" + variant,
                         .torch = str("F.interpolate(x[0], ", torch, ")"),
                         .call = [=](In x) { return interpolate(x[0], options); },
                         .rows = {{floats({2, 3, 7, 9})},
                                  {floats({0, 2, 4, 5})},
                                  {floats({1, 2, 9, 67})},
                                  {floats({1, 1, 1, 1})}},
                         .large = {floats({3, 7, 65, 67})},
                         .twice = true,
                         .layout_bits = false});
    };
    const auto cubic = Interpolation::bicubic, bilinear = Interpolation::bilinear;
    add("bicubic", "size=(11, 26), mode='bicubic'", {.size = Size2(11, 26), .mode = cubic});
    add("bicubic_down", "size=(5, 4), mode='bicubic'", {.size = Size2(5, 4), .mode = cubic});
    add("bicubic_scale", "scale_factor=(1.7, 3.3), mode='bicubic'",
        {.scale_factor = Scale2(1.7, 3.3), .mode = cubic});
    add("bicubic_scale_both", "scale_factor=1.4, mode='bicubic'",
        {.scale_factor = 1.4, .mode = cubic});
    add("bicubic_corners", "size=(1, 150), mode='bicubic', align_corners=True",
        {.size = Size2(1, 150), .mode = cubic, .align_corners = true});
    add("antialias", "size=(11, 4), mode='bilinear', antialias=True",
        {.size = Size2(11, 4), .mode = bilinear, .antialias = true});
    add("antialias_scale", "scale_factor=(0.4, 1.7), mode='bilinear', antialias=True",
        {.scale_factor = Scale2(0.4, 1.7), .mode = bilinear, .antialias = true});
    cases.back().rows.pop_back();  // a size of 1 would become 0
    add("antialias_corners", "size=(3, 80), mode='bilinear', align_corners=True, antialias=True",
        {.size = Size2(3, 80), .mode = bilinear, .align_corners = true, .antialias = true});
    add("antialias_bicubic", "size=(3, 70), mode='bicubic', antialias=True",
        {.size = Size2(3, 70), .mode = cubic, .antialias = true});
    add("antialias_bicubic_corners",
        "size=(2, 5), mode='bicubic', align_corners=True, antialias=True",
        {.size = Size2(2, 5), .mode = cubic, .align_corners = true, .antialias = true});
}

void add_pad_cases(Cases& cases) {
    const auto add = [&](const std::string& variant, const char* torch, std::vector<Row> rows,
                         const Dims& padding, PadMode mode = PadMode::constant, Scalar value = 0) {
        cases.push_back({.name = "pad" + variant,
                         .torch = torch,
                         .call = [=](In x) { return pad(x[0], padding, mode, value); },
                         .rows = std::move(rows),
                         .twice = true});
    };
    const std::vector<Row> planes = {
        {floats({2, 3, 7, 9})}, {floats({5, 6})}, {floats({0, 4, 5})}, {floats({2, 9, 67})}};
    add("", "F.pad(x[0], (1, 2, 3, 0))", planes, {1, 2, 3, 0});
    cases.back().large = {floats({3, 7, 65, 67})};
    add("/last", "F.pad(x[0], (2, 1), value=1.5)",
        {{floats({5})}, {floats({0})}, {floats({3, 67})}, {floats({2, 1})}}, {2, 1},
        PadMode::constant, 1.5);
    add("/crop", "F.pad(x[0], (-1, 2, 3, -2), value=-2)", planes, {-1, 2, 3, -2}, PadMode::constant,
        -2);
    add("/to_nothing", "F.pad(x[0], (-1, -3))", {{floats({3, 4})}}, {-1, -3});
    add("/reflect", "pad_plane(x[0], (1, 4, 3, 0), 'reflect')", planes, {1, 4, 3, 0},
        PadMode::reflect);
    add("/reflect_crop", "pad_plane(x[0], (2, -3, -1, 3), 'reflect')", planes, {2, -3, -1, 3},
        PadMode::reflect);
    add("/replicate", "pad_plane(x[0], (1, 6, 3, 0), 'replicate')", planes, {1, 6, 3, 0},
        PadMode::replicate);
    add("/replicate_crop", "pad_plane(x[0], (2, -3, -1, 5), 'replicate')", planes, {2, -3, -1, 5},
        PadMode::replicate);
    add("/circular", "pad_plane(x[0], (1, 5, 3, 0), 'circular')", planes, {1, 5, 3, 0},
        PadMode::circular);
    add("/circular_crop", "pad_plane(x[0], (2, -1, -1, 2), 'circular')", planes, {2, -1, -1, 2},
        PadMode::circular);
    cases.push_back({.name = "pad/ints",
                     .torch = "F.pad(x[0], (1, 2), value=7)",
                     .call =
                         [](In x) {
                             return pad(x[0], {1, 2}, PadMode::constant, 7);
                         },
                     .rows = {{ints({3, 67}, -9, 9)}, {ints({5}, 0, 99, u8)}, {mask({2, 3})}},
                     .gradient = false});
}

void add_flip_cases(Cases& cases) {
    const auto add = [&](const std::string& variant, const char* torch, std::vector<Row> rows,
                         const Dims& dims) {
        cases.push_back({.name = "flip" + variant,
                         .torch = torch,
                         .call = [=](In x) { return flip(x[0], dims); },
                         .rows = std::move(rows),
                         .twice = true});
    };
    add("", "x[0].flip(-1)", {{floats({3, 4})}, {floats({5})}, {floats({0, 3})}, {floats({3, 67})}},
        {-1});
    cases.back().large = {floats({257, 263})};
    add("/first", "x[0].flip(0)",
        {{floats({3, 4})}, {floats({5, 1})}, {floats({2, 0})}, {floats({3, 67})}}, {0});
    add("/two", "x[0].flip(0, -1)",
        {{floats({2, 3, 4})}, {floats({2, 0, 1})}, {floats({3, 2, 67})}}, {0, -1});
    add("/none", "x[0].flip([])", {{floats({3, 4})}, {floats({})}}, {});
    cases.push_back({.name = "flip/ints",
                     .torch = "x[0].flip(0)",
                     .call = [](In x) { return flip(x[0], {0}); },
                     .rows = {{ints({3, 67}, -9, 9)}, {ints({5}, 0, 99, u8)}, {mask({9})}},
                     .gradient = false});
}

}  // namespace

void add_interpolate_cases(Cases& cases) {
    add_resize_cases(cases);
    add_resample_cases(cases);
    add_pad_cases(cases);
    add_flip_cases(cases);
}

}  // namespace axle::tests
