#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

struct LossVariant {
    const char *name, *torch;  // the end of the case's name; PyTorch's options
    CrossEntropyOptions options;
};

void add_bad_loss_calls(Cases& cases) {
    refuses<DTypeError>(cases, "cross_entropy", {"float32"}, [] {
        cross_entropy(floats_of({2, 3}), floats_of({2}));
    });
    refuses<DTypeError>(cases, "cross_entropy", {"int64"}, [] {
        cross_entropy(ints_of({2, 3}), ints_of({2}));
    });
    refuses<IndexError>(cases, "cross_entropy", {"3"}, [] {
        cross_entropy(floats_of({2, 3}), indices({0, 3}));
    });
    refuses<ShapeError>(cases, "cross_entropy", {"[4, 5]", "[3]"}, [] {
        cross_entropy(floats_of({4, 5}), ints_of({3}));
    });
    refuses<ShapeError>(cases, "cross_entropy", {"[4]"},
                        [] { cross_entropy(floats_of({4}), ints_of({4})); });
    refuses<ValueError>(cases, "cross_entropy", {"1.5"}, [] {
        cross_entropy(floats_of({2, 3}), ints_of({2}), {.label_smoothing = 1.5});
    });
    refuses<IndexError>(cases, "linear_cross_entropy", {"-1"}, [] {
        linear_cross_entropy(floats_of({2, 3}), floats_of({4, 3}), indices({0, -1}));
    });
    refuses<ShapeError>(cases, "linear_cross_entropy", {"[2, 3]", "[4, 5]"}, [] {
        linear_cross_entropy(floats_of({2, 3}), floats_of({4, 5}), ints_of({2}));
    });
    refuses<ValueError>(cases, "linear_cross_entropy", {}, [] {
        linear_cross_entropy(floats_of({2, 3}), floats_of({4, 3}), ints_of({2}),
                             {.reduction = Reduction::none});
    });
    refuses<ShapeError>(cases, "mse_loss", {"[2, 3]", "[4]"}, [] {
        mse_loss(floats_of({2, 3}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "binary_cross_entropy", {"[2, 3]", "[3]"}, [] {
        binary_cross_entropy(floats_of({2, 3}), floats_of({3}));
    });
    refuses<DTypeError>(cases, "binary_cross_entropy", {"int64"},
                        [] { binary_cross_entropy(floats_of({2}), ints_of({2})); });
    refuses<ValueError>(cases, "binary_cross_entropy", {"1.5", "with_logits"},
                        [] { binary_cross_entropy(full({2}, 1.5), floats_of({2})); });
    refuses<UsageError>(cases, "binary_cross_entropy", {"pos_weight"}, [] {
        binary_cross_entropy(floats_of({2}), floats_of({2}), {.pos_weight = floats_of({2})});
    });
    refuses<ShapeError>(cases, "binary_cross_entropy_with_logits", {"[2, 3]", "[3]"}, [] {
        binary_cross_entropy_with_logits(floats_of({2, 3}), floats_of({3}));
    });
    refuses<ShapeError>(cases, "binary_cross_entropy_with_logits", {"pos_weight", "[1, 2, 3]"}, [] {
        binary_cross_entropy_with_logits(floats_of({2, 3}), floats_of({2, 3}),
                                         {.pos_weight = floats_of({1, 2, 3})});
    });
}

void add_binary_cross_entropy(Cases& cases) {
    // Adds a case whose operands are x and targets, then weight (if `weights` is 1 or 2) and
    // pos_weight (if `weights` is 2).
    const auto add = [&](const char* name, const char* options, const char* reduction,
                         BinaryCrossEntropyOptions with, double low, double high, int weights) {
        std::vector<Row> rows;
        for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{0, 3}, Shape{3, 67}}) {
            Row row = {floats(shape, low, high), floats(shape, 0, 1)};
            const Shape last = shape.empty() ? shape : Shape{shape.back()};
            for (int i = 0; i < weights; ++i) row.push_back(frozen(floats(last, 0.5, 2)));
            rows.push_back(row);
        }
        const bool logits = low < 0;
        cases.push_back(
            {.name = name,
             .torch = str(logits ? "F.binary_cross_entropy_with_logits" : "F.binary_cross_entropy",
                          "(x[0], x[1]", options, ", reduction='", reduction, "')"),
             .call =
                 [=](In x) {
                     BinaryCrossEntropyOptions o = with;
                     if (weights > 0) o.weight = x[2];
                     if (weights > 1) o.pos_weight = x[3];
                     return logits ? binary_cross_entropy_with_logits(x[0], x[1], o)
                                   : binary_cross_entropy(x[0], x[1], o);
                 },
             .rows = rows,
             .twice = true});
    };
    constexpr const char* kBoth = ", weight=x[2], pos_weight=x[3]";
    add("binary_cross_entropy", "", "mean", {}, 0.125, 0.875, 0);
    add("binary_cross_entropy/sum", "", "sum", {.reduction = Reduction::sum}, 0.125, 0.875, 0);
    add("binary_cross_entropy/weight", ", weight=x[2]", "none", {.reduction = Reduction::none},
        0.125, 0.875, 1);
    add("binary_cross_entropy_with_logits", "", "mean", {}, -4, 4, 0);
    add("binary_cross_entropy_with_logits/sum", "", "sum", {.reduction = Reduction::sum}, -20, 20,
        0);
    add("binary_cross_entropy_with_logits/weights", kBoth, "none", {.reduction = Reduction::none},
        -4, 4, 2);
    case_named(cases, "binary_cross_entropy").large = {floats({257, 263}, 0.125, 0.875),
                                                       floats({257, 263}, 0, 1)};
    case_named(cases, "binary_cross_entropy_with_logits").large = {floats({257, 263}, -4, 4),
                                                                   floats({257, 263}, 0, 1)};
}

}  // namespace

void add_loss_cases(Cases& cases) {
    const LossVariant variants[] = {
        {"", "", {}},
        {"/sum", ", reduction='sum'", {.reduction = Reduction::sum}},
        {"/ignore", ", ignore_index=2", {.ignore_index = 2}},
        {"/smoothing", ", label_smoothing=0.25", {.label_smoothing = 0.25}},
        {"/everything",
         ", ignore_index=2, label_smoothing=0.25, reduction='sum'",
         {.ignore_index = 2, .label_smoothing = 0.25, .reduction = Reduction::sum}},
        {"/smoothing_ignore",
         ", ignore_index=2, label_smoothing=0.25",
         {.ignore_index = 2, .label_smoothing = 0.25}},
        {"/none",
         ", ignore_index=2, label_smoothing=0.25, reduction='none'",
         {.ignore_index = 2, .label_smoothing = 0.25, .reduction = Reduction::none}},
    };
    for (const auto& [name, torch, options] : variants) {
        cases.push_back({.name = str("cross_entropy", name),
                         .torch = str("F.cross_entropy(x[0], x[1]", torch, ")"),
                         .call = [o = options](In x) { return cross_entropy(x[0], x[1], o); },
                         .rows = {{floats({4, 5}), ints({4}, 0, 5)},
                                  {floats({1, 3}), ints({1}, 0, 2)},
                                  {floats({0, 3}), ints({0}, 0, 3)},
                                  {floats({7, 67}, -8, 8), ints({7}, 0, 9)}},
                         .large = {floats({131, 521}), ints({131}, 0, 521)}});
        if (options.reduction == Reduction::none) continue;
        cases.push_back(
            {.name = str("linear_cross_entropy", name),
             .torch = str("F.cross_entropy(F.linear(x[0], x[1]), x[2]", torch, ")"),
             .call = [o = options](In x) { return linear_cross_entropy(x[0], x[1], x[2], o); },
             .rows = {{floats({4, 3}), floats({5, 3}), ints({4}, 0, 5)},
                      {floats({1, 2}), floats({3, 2}), ints({1}, 0, 2)},
                      {floats({0, 2}), floats({3, 2}), ints({0}, 0, 3)},
                      {floats({7, 9}), floats({67, 9}), ints({7}, 0, 9)}},
             .large = {floats({131, 33}), floats({521, 33}), ints({131}, 0, 521)},
             .layout_bits = false,
             // Half-precision logits are rounded before the softmax; f32 sums have many terms.
             .tolerance = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 8e-2}});
    }
    cases.push_back({.name = "cross_entropy/all_ignored",
                     .torch = "F.cross_entropy(*x)",
                     .call = [](In x) { return cross_entropy(x[0], x[1]); },
                     .rows = {{floats({3, 5}), ints({3}, -100, -99)}},
                     .gradient = false});
    cases.push_back(
        {.name = "cross_entropy/no_gradient_from_ignored",
         .torch = "F.cross_entropy(*x, reduction='sum')",
         .call = [](In x) { return cross_entropy(x[0], x[1], {.reduction = Reduction::sum}); },
         .rows = {{floats({3, 5}), ints({3}, -100, -99)}}});

    const std::vector<Row> pairs = {{floats({3, 4}), floats({3, 4})},
                                    {floats({}), floats({})},
                                    {floats({0, 3}), floats({0, 3})},
                                    {floats({3, 67}), floats({3, 67})}};
    const Row large = {floats({257, 263}), floats({257, 263})};
    const auto mse = [&](const char* name, const char* torch, Reduction reduction) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return mse_loss(x[0], x[1], reduction); },
                         .rows = pairs,
                         .large = large,
                         .twice = true});
    };
    mse("mse_loss", "F.mse_loss(*x)", Reduction::mean);
    mse("mse_loss/sum", "F.mse_loss(*x, reduction='sum')", Reduction::sum);
    mse("mse_loss/none", "F.mse_loss(*x, reduction='none')", Reduction::none);
    add_binary_cross_entropy(cases);
    set_autocast(cases, Autocast::f32,
                 {"cross_entropy", "linear_cross_entropy", "mse_loss", "binary_cross_entropy",
                  "binary_cross_entropy_with_logits"});
    case_named(cases, "cross_entropy").gpu_rows = {{floats({3, 20001}), ints({3}, 0, 20001)}};
    add_bad_loss_calls(cases);
}

}  // namespace axle::tests
