#include "core/sampling.h"

#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_grid_cases(Cases& cases) {
    const auto add = [&](const std::string& variant, const char* torch, std::vector<Row> rows,
                         GridSampleOptions options) {
        cases.push_back({.name = "grid_sample" + variant,
                         .torch = str("F.grid_sample(x[0], x[1], ", torch, ")"),
                         .call = [=](In x) { return grid_sample(x[0], x[1], options); },
                         .rows = std::move(rows),
                         .twice = true,
                         .autocast = Autocast::widest,
                         // As in PyTorch, positions are computed in f32, so that their error in
                         // elements grows with the size of x.
                         .tolerance = {.f32 = 2e-5}});
    };
    const auto images = [] {
        return std::vector<Row>{{floats({2, 3, 7, 5}), floats({2, 3, 9, 2}, -1.5, 1.5)},
                                {floats({1, 2, 1, 4}), floats({1, 5, 3, 2}, -2.5, 2.5)},
                                {floats({0, 2, 4, 5}), floats({0, 3, 2, 2}, -1, 1)}};
    };
    const auto volumes = [] {
        return std::vector<Row>{{floats({2, 2, 3, 5, 4}), floats({2, 2, 3, 4, 3}, -1.5, 1.5)},
                                {floats({1, 3, 2, 1, 3}), floats({1, 3, 1, 2, 3}, -2.5, 2.5)}};
    };
    using enum GridMode;
    using enum GridPadding;
    add("", "align_corners=False", images(), {});
    cases.back().large = {floats({2, 16, 65, 67}), floats({2, 65, 67, 2}, -1.25, 1.25)};
    add("/corners", "align_corners=True", images(), {.align_corners = true});
    add("/border", "padding_mode='border', align_corners=False", images(),
        {.padding_mode = border});
    add("/border_corners", "padding_mode='border', align_corners=True", images(),
        {.padding_mode = border, .align_corners = true});
    add("/reflection", "padding_mode='reflection', align_corners=False", images(),
        {.padding_mode = reflection});
    add("/reflection_corners", "padding_mode='reflection', align_corners=True", images(),
        {.padding_mode = reflection, .align_corners = true});
    add("/nearest", "mode='nearest', align_corners=False", images(), {.mode = nearest});
    add("/nearest_border", "mode='nearest', padding_mode='border', align_corners=True", images(),
        {.mode = nearest, .padding_mode = border, .align_corners = true});
    add("/nearest_reflection", "mode='nearest', padding_mode='reflection', align_corners=False",
        images(), {.mode = nearest, .padding_mode = reflection});
    add("/bicubic", "mode='bicubic', align_corners=False", images(), {.mode = bicubic});
    add("/bicubic_border", "mode='bicubic', padding_mode='border', align_corners=False", images(),
        {.mode = bicubic, .padding_mode = border});
    add("/bicubic_reflection", "mode='bicubic', padding_mode='reflection', align_corners=True",
        images(), {.mode = bicubic, .padding_mode = reflection, .align_corners = true});
    add("/volume", "align_corners=False", volumes(), {});
    add("/volume_corners", "align_corners=True", volumes(), {.align_corners = true});
    add("/volume_border", "padding_mode='border', align_corners=False", volumes(),
        {.padding_mode = border});
    add("/volume_reflection", "padding_mode='reflection', align_corners=False", volumes(),
        {.padding_mode = reflection});
    add("/volume_nearest", "mode='nearest', align_corners=False", volumes(), {.mode = nearest});
    add("/volume_bicubic", "mode='bicubic', align_corners=False", volumes(), {.mode = bicubic});
    add("/volume_bicubic_reflection",
        "mode='bicubic', padding_mode='reflection', align_corners=True", volumes(),
        {.mode = bicubic, .padding_mode = reflection, .align_corners = true});

    const auto refused = [&](const Shape& x, const Shape& grid) {
        refuses<ShapeError>(cases, "grid_sample", {"[N, C, H, W]", str(x), str(grid)},
                            [=] { grid_sample(floats_of(x), floats_of(grid)); });
    };
    refused({1, 2, 4, 5}, {1, 3, 3, 3});
    refused({1, 2, 4, 5}, {2, 3, 3, 2});
    refused({1, 2, 4, 5}, {1, 3, 2});
    refused({1, 2, 0, 5}, {1, 3, 3, 2});
    refused({2, 4, 5}, {2, 3, 1});
    refuses<UsageError>(cases, "grid_sample", {}, [] {
        grid_sample(Tensor(), floats_of({1, 1, 1, 2}));
    });
    refuses<UsageError>(cases, "grid_sample", {}, [] {
        grid_sample(floats_of({1, 1, 1, 2}), Tensor());
    });
    refuses<DTypeError>(cases, "grid_sample", {"int64"}, [] {
        grid_sample(ints_of({1, 1, 1, 2}), floats_of({1, 1, 1, 2}));
    });
    refuses<DTypeError>(cases, "grid_sample", {"float32", "float64"}, [] {
        grid_sample(floats_of({1, 1, 1, 2}), floats_of({1, 1, 1, 2}).to(f64));
    });
}

void add_affine_cases(Cases& cases) {
    const auto add = [&](const std::string& variant, const char* torch, std::vector<Row> rows,
                         const Shape& size, bool align_corners) {
        cases.push_back({.name = "affine_grid" + variant,
                         .torch = torch,
                         .call =
                             [=](In x) {
                                 Shape of_x = size;
                                 of_x[0] = x[0].size(0);
                                 return affine_grid(x[0], of_x, align_corners);
                             },
                         .rows = std::move(rows),
                         .twice = true,
                         .layout_bits = false});
    };
    const auto images = [] {
        return std::vector<Row>{{floats({2, 2, 3})}, {floats({1, 2, 3})}, {floats({7, 2, 3})}};
    };
    const auto volumes = [] { return std::vector<Row>{{floats({2, 3, 4})}, {floats({1, 3, 4})}}; };
    add("", "F.affine_grid(x[0], (len(x[0]), 3, 5, 7), align_corners=False)", images(),
        {0, 3, 5, 7}, false);
    add("/corners", "F.affine_grid(x[0], (len(x[0]), 1, 4, 1), align_corners=True)", images(),
        {0, 1, 4, 1}, true);
    add("/volume", "F.affine_grid(x[0], (len(x[0]), 3, 2, 5, 3), align_corners=False)", volumes(),
        {0, 3, 2, 5, 3}, false);
    add("/volume_corners", "F.affine_grid(x[0], (len(x[0]), 2, 1, 5, 3), align_corners=True)",
        volumes(), {0, 2, 1, 5, 3}, true);
    const auto refused = [&](std::vector<std::string> words, const Shape& theta,
                             const Shape& size) {
        refuses<ShapeError>(cases, "affine_grid", std::move(words),
                            [=] { affine_grid(floats_of(theta), size); });
    };
    refused({"size [2, 3, 4]"}, {2, 2, 3}, {2, 3, 4});
    refused({"size [2, 3, 0, 4]"}, {2, 2, 3}, {2, 3, 0, 4});
    refused({"must be [2, 2, 3]", "theta [2, 3, 4]"}, {2, 3, 4}, {2, 3, 5, 4});
    refused({"must be [3, 2, 3]", "theta [2, 2, 3]"}, {2, 2, 3}, {3, 3, 5, 4});
    refuses<UsageError>(cases, "affine_grid", {}, [] { affine_grid(Tensor(), {1, 1, 2, 2}); });
    refuses<DTypeError>(cases, "affine_grid", {"int64"}, [] {
        affine_grid(ints_of({1, 2, 3}), {1, 1, 2, 2});
    });
}

}  // namespace

void add_sampling_cases(Cases& cases) {
    add_grid_cases(cases);
    add_affine_cases(cases);
}

}  // namespace axle::tests
