#include "core/losses.h"

#include <tuple>

#include "tests/cases/losses/loss_cases.h"

namespace axle::tests {

namespace {

void add_regression(Cases& cases) {
    const std::vector<Row> rows = loss_pairs(-2, 2, -2, 2);
    const std::vector<Row> weighted = {
        {floats({3, 4}), floats({3, 4}), frozen(floats({3, 4}, 0.5, 2))}};
    reduced_loss(
        cases, "l1_loss", "F.l1_loss(x[0], x[1]",
        [](In x, Reduction r) { return l1_loss(x[0], x[1], r); }, rows);
    reduced_loss(
        cases, "l1_loss/weight", "F.l1_loss(x[0], x[1], weight=x[2]",
        [](In x, Reduction r) { return l1_loss(x[0], x[1], r, x[2]); }, weighted);
    reduced_loss(
        cases, "mse_loss/weight", "F.mse_loss(x[0], x[1], weight=x[2]",
        [](In x, Reduction r) { return mse_loss(x[0], x[1], r, x[2]); }, weighted);
    reduced_loss(
        cases, "smooth_l1_loss", "F.smooth_l1_loss(x[0], x[1]",
        [](In x, Reduction r) { return smooth_l1_loss(x[0], x[1], {.reduction = r}); }, rows);
    loss_case(
        cases, "smooth_l1_loss/beta", "F.smooth_l1_loss(x[0], x[1], beta=0.5)",
        [](In x) { return smooth_l1_loss(x[0], x[1], {.beta = 0.5}); }, rows);
    loss_case(
        cases, "smooth_l1_loss/zero_beta", "F.smooth_l1_loss(x[0], x[1], beta=0.0)",
        [](In x) { return smooth_l1_loss(x[0], x[1], {.beta = 0}); }, rows);
    reduced_loss(
        cases, "huber_loss", "F.huber_loss(x[0], x[1]",
        [](In x, Reduction r) { return huber_loss(x[0], x[1], {.reduction = r}); }, rows);
    loss_case(
        cases, "huber_loss/delta", "F.huber_loss(x[0], x[1], delta=0.5)",
        [](In x) { return huber_loss(x[0], x[1], {.delta = 0.5}); }, rows);
    reduced_loss(
        cases, "huber_loss/weight", "F.huber_loss(x[0], x[1], delta=2.5, weight=x[2]",
        [](In x, Reduction r) {
            return huber_loss(x[0], x[1], {.delta = 2.5, .weight = x[2], .reduction = r});
        },
        weighted);
    const Row large = {floats({257, 263}), floats({257, 263})};
    for (const char* op : {"l1_loss", "smooth_l1_loss", "huber_loss"})
        case_named(cases, op).large = large;
    for (const char* op : {"l1_loss", "smooth_l1_loss"}) {
        cases.push_back({.name = str(op, "/ties"),
                         .torch = str("F.", op, "(x[0], x[1])"),
                         .call = case_named(cases, op).call,
                         .rows = {{ties({67}), ties({67})}},
                         .smooth = false});
    }
}

void add_kl_div(Cases& cases) {
    std::vector<Row> rows = loss_pairs(-4, 0, 0.125, 0.875);
    rows.push_back({floats({4, 1}, -4, 0), floats({5}, 0.125, 0.875)});
    const std::tuple<const char*, const char*, KlDivReduction> reductions[] = {
        {"", "mean", KlDivReduction::mean},
        {"/batchmean", "batchmean", KlDivReduction::batchmean},
        {"/sum", "sum", KlDivReduction::sum},
        {"/none", "none", KlDivReduction::none}};
    for (const auto& [suffix, torch, reduction] : reductions)
        for (const bool log_target : {false, true})
            loss_case(
                cases, str("kl_div", suffix, log_target ? "/log_target" : ""),
                str("F.kl_div(x[0], x[1], reduction='", torch,
                    log_target ? "', log_target=True)" : "')"),
                [r = reduction, log_target](In x) {
                    return kl_div(x[0], x[1], {.reduction = r, .log_target = log_target});
                },
                log_target ? loss_pairs(-4, 0, -4, 0) : rows);
    case_named(cases, "kl_div").large = {floats({257, 263}, -4, 0), floats({257, 263}, 0, 1)};
    loss_case(
        cases, "kl_div/zeros", "F.kl_div(x[0], x[1].relu().detach(), reduction='none')",
        [](In x) { return kl_div(x[0], relu(x[1]).detach(), {.reduction = KlDivReduction::none}); },
        {{floats({3, 5}, -4, 0), frozen(floats({3, 5}, -1, 1))}});
}

void add_nll_loss(Cases& cases) {
    const std::vector<Row> rows = {{floats({4, 5}, -4, 0), ints({4}, 0, 5)},
                                   {floats({0, 3}, -4, 0), ints({0}, 0, 3)},
                                   {floats({7, 67}, -8, 0), ints({7}, 0, 9, i32)},
                                   {floats({2, 3, 4}, -4, 0), ints({2, 4}, 0, 3)},
                                   {floats({2, 3, 4, 5}, -4, 0), ints({2, 4, 5}, 0, 3)},
                                   {floats({5}, -4, 0), ints({}, 0, 5)}};
    std::vector<Row> int64_rows = rows, weighted;
    int64_rows[2][1].dtype = i64;
    for (Row row : int64_rows) {
        const Shape& shape = row[0].shape;
        row.push_back(frozen(floats({shape[shape.size() == 1 ? 0 : 1]}, 0.5, 2)));
        weighted.push_back(row);
    }
    reduced_loss(
        cases, "nll_loss", "F.nll_loss(x[0], x[1]",
        [](In x, Reduction r) { return nll_loss(x[0], x[1], {.reduction = r}); }, int64_rows);
    case_named(cases, "nll_loss").large = {floats({131, 521}, -4, 0), ints({131}, 0, 521)};
    reduced_loss(
        cases, "nll_loss/weight", "F.nll_loss(x[0], x[1], weight=x[2], ignore_index=2",
        [](In x, Reduction r) {
            return nll_loss(x[0], x[1], {.weight = x[2], .ignore_index = 2, .reduction = r});
        },
        weighted);
    loss_case(cases, "nll_loss/i32", "F.nll_loss(x[0], x[1].long(), ignore_index=2)",
              [](In x) { return nll_loss(x[0], x[1], {.ignore_index = 2}); }, {rows[2]});
    loss_case(cases, "nll_loss/images", "F.nll_loss(x[0], x[1], ignore_index=2, reduction='none')",
              [](In x) {
                  return nll_loss(x[0], x[1], {.ignore_index = 2, .reduction = Reduction::none});
              },
              {int64_rows[3], int64_rows[4], int64_rows[5]});
    cases.push_back({.name = "nll_loss/all_ignored",
                     .torch = "F.nll_loss(x[0], x[1])",
                     .call = [](In x) { return nll_loss(x[0], x[1]); },
                     .rows = {{floats({3, 5}), ints({3}, -100, -99)}},
                     .gradient = false});
}

void add_cross_entropy(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({2, 3, 4}), ints({2, 4}, 0, 3)}, {floats({2, 3, 4, 5}), ints({2, 4, 5}, 0, 3)},
        {floats({5}), ints({}, 0, 5)},           {floats({0, 3, 2}), ints({0, 2}, 0, 3)},
        {floats({4, 5}), ints({4}, 0, 5)},       {floats({7, 67}, -8, 8), ints({7}, 0, 9)}};
    std::vector<Row> weighted, probabilities, weighted_probabilities;
    for (const Row& row : rows) {
        const Shape& shape = row[0].shape;
        const Input weight = frozen(floats({shape[shape.size() == 1 ? 0 : 1]}, 0.5, 2));
        weighted.push_back({row[0], row[1], weight});
        if (numel(shape) == 0) continue;
        probabilities.push_back({row[0], floats(shape, 0, 1)});
        weighted_probabilities.push_back({row[0], floats(shape, 0, 1), weight});
    }
    for (const auto& [suffix, torch, reduction] : kReductions) {
        const std::string end = str(", reduction='", torch, "')");
        loss_case(
            cases, str("cross_entropy/images", suffix),
            str("F.cross_entropy(x[0], x[1], ignore_index=2, label_smoothing=0.25", end),
            [r = reduction](In x) {
                return cross_entropy(x[0], x[1],
                                     {.ignore_index = 2, .label_smoothing = 0.25, .reduction = r});
            },
            rows);
        loss_case(
            cases, str("cross_entropy/weight", suffix),
            str("F.cross_entropy(x[0], x[1], weight=x[2], ignore_index=2", end),
            [r = reduction](In x) {
                return cross_entropy(x[0], x[1],
                                     {.weight = x[2], .ignore_index = 2, .reduction = r});
            },
            weighted);
        loss_case(
            cases, str("cross_entropy/weight_smoothing", suffix),
            str("F.cross_entropy(x[0], x[1], weight=x[2], ignore_index=2, label_smoothing=0.25",
                end),
            [r = reduction](In x) {
                return cross_entropy(
                    x[0], x[1],
                    {.weight = x[2], .ignore_index = 2, .label_smoothing = 0.25, .reduction = r});
            },
            weighted);
        loss_case(
            cases, str("cross_entropy/probabilities", suffix),
            str("F.cross_entropy(x[0], x[1]", end),
            [r = reduction](In x) { return cross_entropy(x[0], x[1], {.reduction = r}); },
            probabilities);
        loss_case(
            cases, str("cross_entropy/probabilities_weight", suffix),
            str("F.cross_entropy(x[0], x[1], weight=x[2], label_smoothing=0.25", end),
            [r = reduction](In x) {
                return cross_entropy(x[0], x[1],
                                     {.weight = x[2], .label_smoothing = 0.25, .reduction = r});
            },
            weighted_probabilities);
    }
    // The layout changes the rounding of log_softmax if the classes are not the last dimension.
    for (OpCase& c : cases)
        for (const char* variant : {"images", "weight", "probabilities"})
            if (c.name.starts_with(str("cross_entropy/", variant))) c.layout_bits = false;
}

void add_likelihoods(Cases& cases) {
    std::vector<Row> rows = {
        {floats({3, 4}), floats({3, 4}), floats({3, 4}, 0.25, 2)},
        {floats({3, 4}), floats({3, 4}), floats({3}, 0.25, 2)},
        {floats({3, 4}), floats({3, 4}), floats({3, 1}, 0.25, 2)},
        {floats({2, 3, 5}), floats({2, 3, 5}), floats({2, 1, 5}, 0.25, 2)},
        {floats({0, 4}), floats({0, 4}), floats({0, 4}, 0.25, 2)},
        {floats({3, 67}), floats({3, 67}), floats({3, 67}, 0.25, 2)},
        {floats({}), floats({}), floats({}, 0.25, 2)},
    };
    reduced_loss(
        cases, "gaussian_nll_loss", "F.gaussian_nll_loss(x[0], x[1], x[2]",
        [](In x, Reduction r) { return gaussian_nll_loss(x[0], x[1], x[2], {.reduction = r}); },
        rows);
    loss_case(cases, "gaussian_nll_loss/full", "F.gaussian_nll_loss(x[0], x[1], x[2], full=True)",
              [](In x) { return gaussian_nll_loss(x[0], x[1], x[2], {.full = true}); }, {rows[0]});
    loss_case(cases, "gaussian_nll_loss/number", "F.gaussian_nll_loss(x[0], x[1], 0.5)",
              [](In x) { return gaussian_nll_loss(x[0], x[1], 0.5); },
              {{floats({3, 4}), floats({3, 4})}});
    cases.push_back({.name = "gaussian_nll_loss/eps",
                     .torch = "F.gaussian_nll_loss(x[0], x[1], x[2], eps=1.0)",
                     .call = [](In x) { return gaussian_nll_loss(x[0], x[1], x[2], {.eps = 1}); },
                     .rows = {rows[0]},
                     .smooth = false});

    const std::vector<Row> counts = loss_pairs(-2, 2, 0, 5), means = loss_pairs(0.25, 4, 0, 5);
    reduced_loss(
        cases, "poisson_nll_loss", "F.poisson_nll_loss(x[0], x[1]",
        [](In x, Reduction r) { return poisson_nll_loss(x[0], x[1], {.reduction = r}); }, counts);
    reduced_loss(
        cases, "poisson_nll_loss/full", "F.poisson_nll_loss(x[0], x[1], full=True",
        [](In x, Reduction r) {
            return poisson_nll_loss(x[0], x[1], {.full = true, .reduction = r});
        },
        counts);
    loss_case(
        cases, "poisson_nll_loss/means",
        "F.poisson_nll_loss(x[0], x[1], log_input=False, eps=0.25)",
        [](In x) { return poisson_nll_loss(x[0], x[1], {.log_input = false, .eps = 0.25}); },
        means);
    loss_case(cases, "poisson_nll_loss/ints", "F.poisson_nll_loss(x[0], x[1].double(), full=True)",
              [](In x) { return poisson_nll_loss(x[0], x[1], {.full = true}); },
              {{floats({3, 5}), ints({3, 5}, 0, 4)}, {floats({3, 1}), ints({5}, 0, 4)}});
}

void add_binary(Cases& cases) {
    const std::vector<Row> rows = loss_pairs(-4, 4, 0, 1);
    for (const auto& [suffix, torch, reduction] : kReductions)
        loss_case(
            cases, str("sigmoid_focal_loss/", torch),
            str("sigmoid_focal_loss(x[0], x[1], reduction='", torch, "')"),
            [r = reduction](In x) { return sigmoid_focal_loss(x[0], x[1], {.reduction = r}); },
            reduction == Reduction::none ? rows : std::vector<Row>{rows[0]});
    loss_case(
        cases, "sigmoid_focal_loss/options", "sigmoid_focal_loss(x[0], x[1], alpha=-1, gamma=1.5)",
        [](In x) { return sigmoid_focal_loss(x[0], x[1], {.alpha = -1, .gamma = 1.5}); }, rows);
    std::vector<Row> weighted, labels;
    for (const Row& row : rows) {
        const Shape& shape = row[0].shape;
        if (shape.empty()) continue;
        labels.push_back({row[0], ints(shape, 0, 2)});
        weighted.push_back({row[0], row[1], frozen(floats({shape.back()}, 0.5, 2))});
    }
    reduced_loss(
        cases, "multilabel_soft_margin_loss", "F.multilabel_soft_margin_loss(x[0], x[1]",
        [](In x, Reduction r) { return multilabel_soft_margin_loss(x[0], x[1], {.reduction = r}); },
        labels);
    reduced_loss(
        cases, "multilabel_soft_margin_loss/weight",
        "F.multilabel_soft_margin_loss(x[0], x[1], weight=x[2]",
        [](In x, Reduction r) {
            return multilabel_soft_margin_loss(x[0], x[1], {.weight = x[2], .reduction = r});
        },
        weighted);
    reduced_loss(cases, "multilabel_soft_margin_loss/weight_of_element",
                 "F.multilabel_soft_margin_loss(x[0], x[1], weight=x[2]",
                 [](In x, Reduction r) {
                     return multilabel_soft_margin_loss(x[0], x[1],
                                                        {.weight = x[2], .reduction = r});
                 },
                 {{floats({3, 4}), ints({3, 4}, 0, 2), frozen(floats({3, 4}, 0.5, 2))}});
}

void add_bad_calls(Cases& cases) {
    refuses<ShapeError>(cases, "l1_loss", {"[2, 3]", "[3]"}, [] {
        l1_loss(floats_of({2, 3}), floats_of({3}));
    });
    refuses<ShapeError>(cases, "l1_loss", {"weight", "[3]"}, [] {
        l1_loss(floats_of({2, 3}), floats_of({2, 3}), Reduction::mean, floats_of({3}));
    });
    refuses<DTypeError>(cases, "l1_loss", {"int64"}, [] { l1_loss(ints_of({2}), ints_of({2})); });
    refuses<UsageError>(cases, "l1_loss", {}, [] { l1_loss(floats_of({2}), Tensor()); });
    refuses<ValueError>(cases, "smooth_l1_loss", {"beta", "-1"},
                        [] { smooth_l1_loss(floats_of({2}), floats_of({2}), {.beta = -1}); });
    refuses<ValueError>(cases, "huber_loss", {"delta", "0"},
                        [] { huber_loss(floats_of({2}), floats_of({2}), {.delta = 0}); });
    refuses<DTypeError>(cases, "kl_div", {"target", "int64"},
                        [] { kl_div(floats_of({2}), ints_of({2})); });
    refuses<ShapeError>(cases, "nll_loss", {"[2, 3]", "[3]"}, [] {
        nll_loss(floats_of({2, 3}), ints_of({3}));
    });
    refuses<ShapeError>(cases, "nll_loss", {"weight", "[2]"}, [] {
        nll_loss(floats_of({2, 3}), ints_of({2}), {.weight = floats_of({2})});
    });
    refuses<IndexError>(cases, "nll_loss", {"-1"}, [] {
        nll_loss(floats_of({2, 3}), indices({0, -1}));
    });
    refuses<ShapeError>(cases, "cross_entropy", {"weight", "[2]"}, [] {
        cross_entropy(floats_of({2, 3}), ints_of({2}), {.weight = floats_of({2})});
    });
    refuses<ShapeError>(cases, "cross_entropy", {"[2, 3]", "[2, 4]"}, [] {
        cross_entropy(floats_of({2, 3}), floats_of({2, 4}));
    });
    refuses<ShapeError>(cases, "cross_entropy", {"[2, 3, 4]", "[2, 3]"}, [] {
        cross_entropy(floats_of({2, 3, 4}), ints_of({2, 3}));
    });
    refuses<ValueError>(cases, "cross_entropy", {"ignore_index", "2"}, [] {
        cross_entropy(floats_of({2, 3}), floats_of({2, 3}), {.ignore_index = 2});
    });
    refuses<UsageError>(cases, "linear_cross_entropy", {"class weights"}, [] {
        linear_cross_entropy(floats_of({2, 3}), floats_of({4, 3}), ints_of({2}),
                             {.weight = floats_of({4})});
    });
    refuses<ShapeError>(cases, "gaussian_nll_loss", {"var", "[2]"}, [] {
        gaussian_nll_loss(floats_of({2, 3, 4}), floats_of({2, 3, 4}), floats_of({2}));
    });
    refuses<ValueError>(cases, "gaussian_nll_loss", {"-1"}, [] {
        gaussian_nll_loss(floats_of({2}), floats_of({2}), -1.0 * floats_of({2}));
    });
    refuses<ValueError>(cases, "gaussian_nll_loss", {"-1"},
                        [] { gaussian_nll_loss(floats_of({2}), floats_of({2}), -1.0); });
    refuses<ShapeError>(cases, "poisson_nll_loss", {"[2]", "[3]"},
                        [] { poisson_nll_loss(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "sigmoid_focal_loss", {"[2]", "[3]"},
                        [] { sigmoid_focal_loss(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "multilabel_soft_margin_loss", {"[2]", "[3]"},
                        [] { multilabel_soft_margin_loss(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "multilabel_soft_margin_loss", {"[]"},
                        [] { multilabel_soft_margin_loss(floats_of({}), floats_of({})); });
}

}  // namespace

void add_losses_cases(Cases& cases) {
    add_regression(cases);
    add_kl_div(cases);
    add_nll_loss(cases);
    add_cross_entropy(cases);
    add_likelihoods(cases);
    add_binary(cases);
    add_margin_losses(cases);
    add_ctc_loss(cases);
    set_autocast(cases, Autocast::f32,
                 {"l1_loss",
                  "mse_loss",
                  "smooth_l1_loss",
                  "huber_loss",
                  "kl_div",
                  "nll_loss",
                  "cross_entropy",
                  "gaussian_nll_loss",
                  "poisson_nll_loss",
                  "sigmoid_focal_loss",
                  "multilabel_soft_margin_loss",
                  "soft_margin_loss",
                  "margin_ranking_loss",
                  "hinge_embedding_loss",
                  "multi_margin_loss",
                  "multilabel_margin_loss",
                  "cosine_embedding_loss",
                  "triplet_margin_loss",
                  "triplet_margin_with_distance_loss",
                  "ctc_loss"});
    add_bad_calls(cases);
}

}  // namespace axle::tests
