#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_softmax_cases(Cases& cases, const std::string& name,
                       Tensor (*f)(const Tensor&, std::int64_t)) {
    const auto add = [&](const std::string& variant, std::int64_t dim, std::vector<Row> rows) {
        cases.push_back({.name = name + variant,
                         .torch = str("torch.", name, "(x[0], ", dim, ")"),
                         .call = [=](In x) { return f(x[0], dim); },
                         .rows = std::move(rows),
                         .large = {floats({257, 263})},
                         // Another memory layout changes the order of summation of a column.
                         .layout_bits = dim == -1});
    };
    add("", -1,
        {{floats({4, 9})},
         {floats({})},
         {floats({0, 5})},
         {floats({3, 0})},
         {floats({5, 1})},
         {floats({3, 67})},
         {floats({2, 3, 4})},
         {floats({3, 67}, -300, 300)}});
    add("/first", 0, {{floats({4, 9})}, {floats({67, 3})}, {floats({1, 5})}, {floats({0, 5})}});
    add("/middle", 1, {{floats({2, 5, 3})}, {floats({2, 67, 2})}});
    // In the first row of operands, several elements can be -inf. In the second, all elements are
    // -inf, so the results are NaN.
    cases.push_back(
        {.name = name + "/infinite",
         .torch = str("torch.", name, "(x[0].masked_fill(x[1], -inf), -1)"),
         .call = [=](In x) { return f(masked_fill(x[0], x[1], -1.0 / 0.0), -1); },
         .rows = {{floats({4, 9}), mask({4, 9})}, {floats({2, 5}), ints({2, 5}, 1, 2, boolean)}},
         .gradient = false});
    cases.push_back({.name = name + "/specials",
                     .torch = str("torch.", name, "(x[0], -1)"),
                     .call = [=](In x) { return f(x[0], -1); },
                     .rows = {{specials({3, 11})}, {specials({4})}, {specials({5})}},
                     .gradient = false});
}

// Returns one row for each shape. The row contains x of this shape, and the given number of
// parameters with one value per channel.
std::vector<Row> with_channels(const std::vector<Shape>& shapes, int parameters) {
    std::vector<Row> rows;
    for (const Shape& shape : shapes) {
        rows.push_back({floats(shape)});
        for (int i = 0; i < parameters; ++i) rows.back().push_back(floats({shape[1]}));
    }
    return rows;
}
// Returns x, the running mean and variance, and the given number of parameters.
Row with_running(const Shape& shape, int parameters) {
    const Shape channels = {shape[1]};
    Row row = {floats(shape), frozen(floats(channels)), frozen(floats(channels, 0.5, 2))};
    for (int i = 0; i < parameters; ++i) row.push_back(floats(channels));
    return row;
}

// Half precision rounds the normalized elements before they are summed into gradients of
// parameters.
constexpr Tolerances kChannelsSummed = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};

void add_batch_norm_cases(Cases& cases) {
    const auto add = [&](const char* name, const char* torch, std::vector<Row> rows, Row large,
                         std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = std::move(rows),
                         .large = std::move(large),
                         .twice = true,
                         .tolerance = kChannelsSummed});
    };
    const std::vector<Shape> shapes = {{5, 3},    {4, 3, 5}, {3, 2, 2, 3},   {2, 3, 67},
                                       {0, 3, 2}, {37, 5},   {2, 2, 2, 2, 2}};
    const Input wide = floats({17, 19, 23, 11}), channels = floats({19});
    add("batch_norm", "batch_norm(*x)", with_channels(shapes, 2), {wide, channels, channels},
        [](In x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); });
    add("batch_norm/weight", "batch_norm(*x)", with_channels(shapes, 1),
        {floats({515, 133}), floats({133})},
        [](In x) { return batch_norm(x[0], {}, {}, x[1], {}, true); });
    add("batch_norm/plain", "batch_norm(x[0], eps=0.01)", with_channels(shapes, 0),
        {floats({2, 3, 20000})},
        [](In x) { return batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 0.01); });
    add("batch_norm/far", "batch_norm(x[0])", {{floats({3, 2, 67}, 100, 104)}}, {},
        [](In x) { return batch_norm(x[0], {}, {}, {}, {}, true); });
    // Inputs are near 102: after subtracting the mean, five of seven digits remain.
    cases.back().tolerance = {.f32 = 1e-4};
    add("batch_norm/running", "batch_norm_and_statistics(*x, momentum=0.3)",
        {with_running({5, 3}, 0), with_running({4, 3, 5}, 0), with_running({2, 3, 67}, 0)}, {},
        [](In x) {
            const Tensor mean = clone(x[1]), var = clone(x[2]);
            const Tensor y = batch_norm(x[0], mean, var, {}, {}, true, 0.3);
            return Outputs(std::vector<Tensor>{y, mean, var});
        });
    cases.back().gradient = false;
    std::vector<Row> evaluated;
    for (const Shape& shape : shapes) evaluated.push_back(with_running(shape, 2));
    evaluated.push_back(with_running({1, 3}, 2));
    add("batch_norm/evaluation", "F.batch_norm(*x)", evaluated, with_running({17, 19, 23, 11}, 2),
        [](In x) { return batch_norm(x[0], x[1], x[2], x[3], x[4]); });
}

void add_group_norm_cases(Cases& cases) {
    const auto add = [&](const char* name, const char* torch, int parameters, Row large,
                         std::function<Outputs(In)> call) {
        cases.push_back(
            {.name = name,
             .torch = torch,
             .call = std::move(call),
             .rows = with_channels(
                 {{2, 6}, {3, 6, 5}, {2, 6, 2, 3}, {1, 6, 67}, {2, 6, 1, 35}, {0, 6, 2}},
                 parameters),
             .large = std::move(large),
             .twice = true,
             .tolerance = kChannelsSummed});
    };
    const Input wide = floats({17, 18, 23, 11}), channels = floats({18});
    add("group_norm", "F.group_norm(x[0], 2, *x[1:])", 2, {wide, channels, channels},
        [](In x) { return group_norm(x[0], 2, x[1], x[2]); });
    add("group_norm/weight", "F.group_norm(x[0], 3, x[1])", 1, {floats({515, 132}), floats({132})},
        [](In x) { return group_norm(x[0], 3, x[1]); });
    add("group_norm/plain", "F.group_norm(x[0], 1, eps=0.01)", 0, {floats({2, 3, 20000})},
        [](In x) { return group_norm(x[0], 1, {}, {}, 0.01); });
    add("group_norm/far", "F.group_norm(x[0], 2)", 0, {}, [](In x) { return group_norm(x[0], 2); });
    cases.back().rows = {{floats({3, 4, 67}, 100, 104)}};
    cases.back().tolerance = {.f32 = 1e-4};  // inputs are near 102, as in batch_norm/far
}

void add_neighbor_norm_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const char* torch, int parameters,
                         std::function<Outputs(In)> call) {
        std::vector<Shape> shapes = {{3, 6, 5}, {2, 6, 2, 3}, {1, 6, 67}};
        // PyTorch's instance_norm refuses an empty batch.
        if (name.starts_with("local_response_norm")) shapes.push_back({0, 6, 2});
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = with_channels(shapes, parameters),
                         .twice = true,
                         .tolerance = kChannelsSummed});
    };
    add("instance_norm", "F.instance_norm(x[0])", 0, [](In x) { return instance_norm(x[0]); });
    add("instance_norm/affine", "F.instance_norm(x[0], weight=x[1], bias=x[2], eps=0.01)", 2,
        [](In x) { return instance_norm(x[0], x[1], x[2], 0.01); });
    cases.push_back({.name = "instance_norm/empty",
                     .torch = "F.group_norm(x[0], 6)",
                     .call = [](In x) { return instance_norm(x[0]); },
                     .rows = with_channels({{0, 6, 2}}, 0),
                     .twice = true});
    add("local_response_norm", "F.local_response_norm(x[0], 3)", 0,
        [](In x) { return local_response_norm(x[0], 3); });
    add("local_response_norm/even", "F.local_response_norm(x[0], 4, 0.5, 0.6, 2.0)", 0,
        [](In x) { return local_response_norm(x[0], 4, {.alpha = 0.5, .beta = 0.6, .k = 2}); });
    refuses<ShapeError>(cases, "instance_norm", {"[2, 3]"}, [] {
        instance_norm(floats_of({2, 3}));
    });
    refuses<ShapeError>(cases, "local_response_norm", {"[2, 3]"}, [] {
        local_response_norm(floats_of({2, 3}), 2);
    });
    refuses<ValueError>(cases, "local_response_norm", {"0"}, [] {
        local_response_norm(floats_of({2, 3, 4}), 0);
    });
    refuses<UsageError>(cases, "instance_norm", {}, [] { instance_norm(Tensor()); });
    refuses<UsageError>(cases, "local_response_norm", {}, [] { local_response_norm(Tensor(), 2); });
}

void add_bad_norm_calls(Cases& cases) {
    refuses<DTypeError>(cases, "softmax", {"int64"}, [] { softmax(ints_of({2})); });
    refuses<IndexError>(cases, "softmax", {"2"}, [] { softmax(floats_of({2, 3}), 2); });
    refuses<DTypeError>(cases, "log_softmax", {"int64"}, [] { log_softmax(ints_of({2})); });
    refuses<DTypeError>(cases, "layer_norm", {"int64"}, [] { layer_norm(ints_of({2})); });
    refuses<ShapeError>(cases, "layer_norm", {"[2, 3]", "[4]"}, [] {
        layer_norm(floats_of({2, 3}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "layer_norm", {"[2, 3]", "[2]"}, [] {
        layer_norm(floats_of({2, 3}), floats_of({3}), floats_of({2}));
    });
    refuses<ShapeError>(cases, "layer_norm", {"[]"}, [] { layer_norm(floats_of({})); });
    refuses<ShapeError>(cases, "rms_norm", {"[2, 3]", "[1]"}, [] {
        rms_norm(floats_of({2, 3}), floats_of({1}));
    });
}

}  // namespace

void add_norm_cases(Cases& cases) {
    add_softmax_cases(cases, "softmax", softmax);
    add_softmax_cases(cases, "log_softmax", log_softmax);

    // Half precision rounds the normalized rows before they are summed into gradients of
    // parameters.
    const Tolerances rows_summed = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};
    const std::vector<Row> plain = {
        {floats({3, 5})}, {floats({5})}, {floats({0, 5})}, {floats({2, 2, 3})}, {floats({3, 67})}};
    const auto affine = [](int parameters) {
        std::vector<Row> rows;
        for (const Shape& shape :
             {Shape{3, 5}, Shape{5}, Shape{0, 5}, Shape{2, 2, 3}, Shape{3, 67}, Shape{2, 1}}) {
            rows.push_back({floats(shape)});
            for (int i = 0; i < parameters; ++i) rows.back().push_back(floats({shape.back()}));
        }
        return rows;
    };
    const auto add = [&](const char* name, const char* torch, std::vector<Row> rows, Row large,
                         std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = std::move(rows),
                         .large = std::move(large),
                         .tolerance = rows_summed});
    };
    const Input wide = floats({257, 263}), width = floats({263});
    add("layer_norm", "F.layer_norm(x[0], x[0].shape[-1:], *x[1:])", affine(2),
        {wide, width, width}, [](In x) { return layer_norm(x[0], x[1], x[2]); });
    add("layer_norm/weight", "F.layer_norm(x[0], x[0].shape[-1:], x[1])", affine(1), {wide, width},
        [](In x) { return layer_norm(x[0], x[1]); });
    add("layer_norm/plain", "F.layer_norm(x[0], x[0].shape[-1:], eps=0.01)", plain, {wide},
        [](In x) { return layer_norm(x[0], {}, {}, 0.01); });
    add("layer_norm/far", "F.layer_norm(x[0], x[0].shape[-1:])", {{floats({3, 67}, 100, 104)}}, {},
        [](In x) { return layer_norm(x[0]); });
    // Inputs are near 102: after subtracting the mean, five of seven digits remain.
    cases.back().tolerance = {.f32 = 1e-4};
    add("rms_norm", "F.rms_norm(x[0], x[0].shape[-1:], x[1], 1e-6)", affine(1), {wide, width},
        [](In x) { return rms_norm(x[0], x[1], 1e-6); });
    // If the width is 1, the gradient is the small difference of two almost equal terms. PyTorch
    // has an error of 1e-5 in f32.
    cases.back().tolerance = {.f32 = 2e-5};
    add("rms_norm/plain", "F.rms_norm(x[0], x[0].shape[-1:], eps=0.01)", plain, {wide},
        [](In x) { return rms_norm(x[0], {}, 0.01); });
    add_batch_norm_cases(cases);
    add_group_norm_cases(cases);
    add_neighbor_norm_cases(cases);
    // 16400 is a multiple of the number of elements in a pack, but 16403 is not.
    const std::vector<Row> long_rows = {{floats({2, 16400})}, {floats({2, 16403})}};
    cases.push_back({.name = "softmax/scaled",
                     .torch = "torch.softmax(x[0], -1) * 1000",
                     .call = [](In x) { return softmax(x[0]) * 1000; },
                     .rows = {{floats({3, 67})}},
                     .gpu_rows = long_rows});
    case_named(cases, "log_softmax").gpu_rows = long_rows;
    case_named(cases, "layer_norm").gpu_rows = {
        {floats({18, 8200}), floats({8200}), floats({8200})},
        {floats({2, 16403}), floats({16403}), floats({16403})}};
    case_named(cases, "rms_norm").gpu_rows = {{floats({18, 8200}), floats({8200})},
                                              {floats({2, 16403}), floats({16403})}};
    set_autocast(
        cases, Autocast::f32,
        {"softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "instance_norm"});
    add_bad_norm_calls(cases);
}

}  // namespace axle::tests
