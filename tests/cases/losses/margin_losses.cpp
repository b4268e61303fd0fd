#include <limits>
#include <utility>

#include "tests/cases/losses/loss_cases.h"

namespace axle::tests {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns rows with the given number of floating operands, and with integers 0 or 1, from which
// cases compute targets -1 and 1.
std::vector<Row> with_signs(int operands) {
    std::vector<Row> rows;
    for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{0, 3}, Shape{3, 67}}) {
        Row row;
        for (int i = 0; i < operands; ++i) row.push_back(floats(shape));
        row.push_back(ints(shape, 0, 2));
        rows.push_back(row);
    }
    return rows;
}
Tensor signs(const Tensor& bits) { return bits * 2 - 1; }

void add_margins(Cases& cases) {
    reduced_loss(
        cases, "soft_margin_loss", "F.soft_margin_loss(x[0], x[1] * 2 - 1",
        [](In x, Reduction r) { return soft_margin_loss(x[0], signs(x[1]), r); }, with_signs(1));
    reduced_loss(
        cases, "margin_ranking_loss", "F.margin_ranking_loss(x[0], x[1], x[2] * 2 - 1",
        [](In x, Reduction r) {
            return margin_ranking_loss(x[0], x[1], signs(x[2]), {.reduction = r});
        },
        with_signs(2));
    loss_case(cases, "margin_ranking_loss/margin",
              "F.margin_ranking_loss(x[0], x[1], x[2] * 2 - 1, margin=0.5)",
              [](In x) { return margin_ranking_loss(x[0], x[1], signs(x[2]), {.margin = 0.5}); },
              {{floats({3, 5}), floats({3, 1}), ints({1, 5}, 0, 2)}});
    reduced_loss(
        cases, "hinge_embedding_loss", "F.hinge_embedding_loss(x[0], x[1] * 2 - 1",
        [](In x, Reduction r) { return hinge_embedding_loss(x[0], signs(x[1]), {.reduction = r}); },
        with_signs(1));
    loss_case(cases, "hinge_embedding_loss/margin",
              "F.hinge_embedding_loss(x[0], x[1] * 2 - 1, margin=0.5)",
              [](In x) { return hinge_embedding_loss(x[0], signs(x[1]), {.margin = 0.5}); },
              {{floats({3, 5}), ints({5}, 0, 2)}});
    cases.push_back(
        {.name = "margin_ranking_loss/ties",
         .torch = "F.margin_ranking_loss(x[0], x[1], x[2] * 2 - 1, margin=1.0)",
         .call = [](In x) { return margin_ranking_loss(x[0], x[1], signs(x[2]), {.margin = 1}); },
         .rows = {{ties({67}), ties({67}), ints({67}, 0, 2)}},
         .smooth = false});
    cases.push_back({.name = "hinge_embedding_loss/ties",
                     .torch = "F.hinge_embedding_loss(x[0], x[1])",
                     .call = [](In x) { return hinge_embedding_loss(x[0], x[1]); },
                     .rows = {{ties({67}), ints({67}, -1, 2)}},
                     .smooth = false});

    const std::vector<Row> rows = {{distinct({5, 7}), ints({5}, 0, 7)},
                                   {distinct({3, 67}), ints({3}, 0, 67)},
                                   {distinct({7}), ints({}, 0, 7)},
                                   {distinct({7}), ints({1}, 0, 7)}};
    std::vector<Row> weighted;
    for (const Row& row : rows)
        weighted.push_back({row[0], row[1], frozen(floats({row[0].shape.back()}, 0.5, 2))});
    reduced_loss(
        cases, "multi_margin_loss", "F.multi_margin_loss(x[0], x[1]",
        [](In x, Reduction r) { return multi_margin_loss(x[0], x[1], {.reduction = r}); }, rows);
    reduced_loss(
        cases, "multi_margin_loss/options",
        "F.multi_margin_loss(x[0], x[1], p=2, margin=0.5, weight=x[2]",
        [](In x, Reduction r) {
            return multi_margin_loss(x[0], x[1],
                                     {.p = 2, .margin = 0.5, .weight = x[2], .reduction = r});
        },
        weighted);
    loss_case(cases, "multi_margin_loss/single",
              "F.multi_margin_loss(x[0], x[1], reduction='none')",
              [](In x) { return multi_margin_loss(x[0], x[1], {.reduction = Reduction::none}); },
              {rows[2], rows[3]});
    reduced_loss(cases, "multilabel_margin_loss", "F.multilabel_margin_loss(x[0], x[1]",
                 [](In x, Reduction r) { return multilabel_margin_loss(x[0], x[1], r); },
                 {{distinct({5, 7}), ints({5, 7}, -1, 7)},
                  {distinct({3, 67}), ints({3, 67}, -1, 67)},
                  {distinct({7}), ints({7}, -1, 7)}});
    loss_case(cases, "multilabel_margin_loss/single",
              "F.multilabel_margin_loss(x[0], x[1], reduction='none')",
              [](In x) { return multilabel_margin_loss(x[0], x[1], Reduction::none); },
              {{distinct({7}), ints({7}, -1, 7)}});
    // PyTorch does not set the results of empty batches.
    cases.push_back(
        {.name = "multi_margin_loss/empty",
         .call = [](In x) { return multi_margin_loss(x[0], x[1], {.reduction = Reduction::sum}); },
         .rows = {{distinct({0, 3}), ints({0}, 0, 3)}}});
    cases.push_back(
        {.name = "multilabel_margin_loss/empty",
         .call = [](In x) { return multilabel_margin_loss(x[0], x[1], Reduction::sum); },
         .rows = {{distinct({0, 3}), ints({0, 3}, -1, 3)}}});
}

void add_distances(Cases& cases) {
    const std::vector<Row> rows = {{floats({4, 6}), floats({4, 6}), ints({4}, 0, 2)},
                                   {floats({6}), floats({6}), ints({}, 0, 2)},
                                   {floats({0, 3}), floats({0, 3}), ints({0}, 0, 2)},
                                   {floats({3, 67}), floats({3, 67}), ints({3}, 0, 2)}};
    reduced_loss(
        cases, "cosine_embedding_loss", "F.cosine_embedding_loss(x[0], x[1], x[2] * 2 - 1",
        [](In x, Reduction r) {
            return cosine_embedding_loss(x[0], x[1], signs(x[2]), {.reduction = r});
        },
        rows);
    loss_case(
        cases, "cosine_embedding_loss/margin",
        "F.cosine_embedding_loss(x[0], x[1], x[2] * 2 - 1, margin=-0.5)",
        [](In x) { return cosine_embedding_loss(x[0], x[1], signs(x[2]), {.margin = -0.5}); },
        rows);

    std::vector<Row> triplets;
    for (const Shape& shape : {Shape{4, 5}, Shape{5}, Shape{0, 3}, Shape{2, 3, 67}})
        triplets.push_back({floats(shape), floats(shape), floats(shape)});
    triplets.push_back({floats({4, 5}), floats({1, 5}), floats({4, 5})});
    reduced_loss(
        cases, "triplet_margin_loss", "F.triplet_margin_loss(x[0], x[1], x[2]",
        [](In x, Reduction r) { return triplet_margin_loss(x[0], x[1], x[2], {.reduction = r}); },
        triplets);
    const std::pair<const char*, double> norms[] = {
        {"one", 1}, {"three", 3}, {"half", 0.5}, {"infinity", kInfinity}};
    for (const auto& [norm, p] : norms)
        loss_case(
            cases, str("triplet_margin_loss/", norm),
            str("F.triplet_margin_loss(x[0], x[1], x[2], margin=2.5, p=", p,
                ", eps=0.001, swap=True, reduction='none')"),
            [p = p](In x) {
                return triplet_margin_loss(x[0], x[1], x[2],
                                           {.margin = 2.5,
                                            .p = p,
                                            .eps = 0.001,
                                            .swap = true,
                                            .reduction = Reduction::none});
            },
            triplets);
    cases.push_back(
        {.name = "triplet_margin_loss/equal",
         .torch = "F.triplet_margin_loss(x[0], x[0], x[1], margin=9.0, eps=0.0)",
         .call =
             [](In x) { return triplet_margin_loss(x[0], x[0], x[1], {.margin = 9, .eps = 0}); },
         .rows = {{floats({4, 5}), floats({4, 5})}},
         .smooth = false});
    reduced_loss(
        cases, "triplet_margin_with_distance_loss",
        "F.triplet_margin_with_distance_loss(x[0], x[1], x[2]",
        [](In x, Reduction r) {
            return triplet_margin_with_distance_loss(x[0], x[1], x[2], {.reduction = r});
        },
        triplets);
    loss_case(
        cases, "triplet_margin_with_distance_loss/options",
        "F.triplet_margin_with_distance_loss(x[0], x[1], x[2], margin=2.5, swap=True, "
        "distance_function=lambda a, b: (a - b).square().mean(-1))",
        [](In x) {
            return triplet_margin_with_distance_loss(
                x[0], x[1], x[2],
                {.distance_function = [](const Tensor& a,
                                         const Tensor& b) { return mean(square(a - b), {-1}); },
                 .margin = 2.5,
                 .swap = true});
        },
        triplets);
}

void add_bad_margin_calls(Cases& cases) {
    refuses<DTypeError>(cases, "soft_margin_loss", {"int64"},
                        [] { soft_margin_loss(ints_of({2}), ints_of({2})); });
    refuses<ShapeError>(cases, "margin_ranking_loss", {"[2]", "[1, 2]"}, [] {
        margin_ranking_loss(floats_of({2}), floats_of({2}), ints_of({1, 2}));
    });
    refuses<UsageError>(cases, "hinge_embedding_loss", {},
                        [] { hinge_embedding_loss(Tensor(), ints_of({2})); });
    refuses<ValueError>(cases, "multi_margin_loss", {"p", "3"}, [] {
        multi_margin_loss(floats_of({2, 3}), ints_of({2}), {.p = 3});
    });
    refuses<ShapeError>(cases, "multi_margin_loss", {"[2, 3]", "[3]"}, [] {
        multi_margin_loss(floats_of({2, 3}), ints_of({3}));
    });
    refuses<IndexError>(cases, "multi_margin_loss", {"3"}, [] {
        multi_margin_loss(floats_of({2, 3}), indices({0, 3}));
    });
    refuses<ShapeError>(cases, "multilabel_margin_loss", {"[2, 3]", "[2]"}, [] {
        multilabel_margin_loss(floats_of({2, 3}), ints_of({2}));
    });
    refuses<IndexError>(cases, "multilabel_margin_loss", {"-2"}, [] {
        multilabel_margin_loss(floats_of({3}), indices({0, -2, 1}));
    });
    refuses<ShapeError>(cases, "cosine_embedding_loss", {"[2, 3]", "[2, 1]"}, [] {
        cosine_embedding_loss(floats_of({2, 3}), floats_of({2, 3}), ints_of({2, 1}));
    });
    refuses<ShapeError>(cases, "triplet_margin_loss", {"[3]"}, [] {
        triplet_margin_loss(floats_of({2, 3}), floats_of({2, 3}), floats_of({3}));
    });
    refuses<ValueError>(cases, "triplet_margin_loss", {"margin", "0"}, [] {
        triplet_margin_loss(floats_of({3}), floats_of({3}), floats_of({3}), {.margin = 0});
    });
    refuses<ValueError>(cases, "triplet_margin_loss", {"p ", "-1"}, [] {
        triplet_margin_loss(floats_of({3}), floats_of({3}), floats_of({3}), {.p = -1});
    });
    refuses<ValueError>(cases, "triplet_margin_with_distance_loss", {"margin", "-1"}, [] {
        triplet_margin_with_distance_loss(floats_of({3}), floats_of({3}), floats_of({3}),
                                          {.margin = -1});
    });
}

}  // namespace

void add_margin_losses(Cases& cases) {
    add_margins(cases);
    add_distances(cases);
    add_bad_margin_calls(cases);
}

}  // namespace axle::tests
