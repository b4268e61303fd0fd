#include "tests/cases/losses/loss_cases.h"

namespace axle::tests {

namespace {

Outputs ctc_of_logits(In x, const CtcLossOptions& options) {
    return ctc_loss(log_softmax(x[0], -1), x[1], x[2], x[3], options);
}

// Returns a row with targets [samples, labels] in [1, classes).
Row padded(std::int64_t steps, std::int64_t samples, std::int64_t classes, std::int64_t labels) {
    return {floats({steps, samples, classes}), ints({samples, labels}, 1, classes),
            ints({samples}, steps - 2, steps + 1), ints({samples}, 0, labels + 1)};
}

void add_bad_ctc_calls(Cases& cases) {
    const auto call = [](const Shape& probs, const Tensor& targets, const Tensor& steps,
                         const Tensor& lengths, std::int64_t blank = 0) {
        ctc_loss(floats_of(probs), targets, steps, lengths, {.blank = blank});
    };
    refuses<ShapeError>(cases, "ctc_loss", {"[3]", "[1, 2]"}, [=] {
        call({3}, ints_of({1, 2}), indices({3}), indices({2}));
    });
    refuses<ShapeError>(cases, "ctc_loss", {"[3, 2, 4]", "[1, 2]"}, [=] {
        call({3, 2, 4}, ints_of({1, 2}), indices({3, 3}), indices({2, 2}));
    });
    refuses<ShapeError>(cases, "ctc_loss", {"input_lengths", "[2]", "[1]"}, [=] {
        call({3, 2, 4}, ints_of({2, 2}), indices({3}), indices({2, 2}));
    });
    refuses<ValueError>(cases, "ctc_loss", {"input_lengths", "4"}, [=] {
        call({3, 2, 4}, ints_of({2, 2}), indices({3, 4}), indices({2, 2}));
    });
    refuses<ValueError>(cases, "ctc_loss", {"target_lengths", "-1"}, [=] {
        call({3, 2, 4}, ints_of({2, 2}), indices({3, 3}), indices({2, -1}));
    });
    refuses<ValueError>(cases, "ctc_loss", {"target_lengths", "3", "4"}, [=] {
        call({3, 2, 4}, ints_of({4}), indices({3, 3}), indices({2, 1}));
    });
    refuses<ValueError>(cases, "ctc_loss", {"blank", "4"}, [=] {
        call({3, 2, 4}, ints_of({2, 2}), indices({3, 3}), indices({2, 2}), 4);
    });
    refuses<IndexError>(cases, "ctc_loss", {"blank"}, [=] {
        call({3, 2, 4}, ints_of({2, 2}), indices({3, 3}), indices({2, 2}), 1);
    });
    refuses<IndexError>(cases, "ctc_loss", {"4"}, [=] {
        call({3, 1, 4}, indices({2, 4}), indices({3}), indices({2}));
    });
    refuses<DTypeError>(cases, "ctc_loss", {"float32"}, [=] {
        call({3, 1, 4}, floats_of({2}), indices({3}), indices({2}));
    });
}

}  // namespace

void add_ctc_loss(Cases& cases) {
    const std::string of_logits = "F.ctc_loss(F.log_softmax(x[0], -1), x[1], x[2], x[3]";
    const std::vector<Row> rows = {padded(9, 3, 7, 4), padded(12, 2, 5, 5), padded(4, 1, 3, 1)};
    for (const auto& [suffix, torch, reduction] : kReductions)
        cases.push_back(
            {.name = str("ctc_loss", suffix),
             .torch = str(of_logits, ", reduction='", torch, "')"),
             .call = [r = reduction](In x) { return ctc_of_logits(x, {.reduction = r}); },
             .rows = rows});
    case_named(cases, "ctc_loss").large = padded(60, 9, 31, 20);
    // A sample has more states than a block of the GPU kernel has threads.
    case_named(cases, "ctc_loss").gpu_rows = {padded(310, 2, 9, 150)};
    cases.push_back(
        {.name = "ctc_loss/log_probs",
         .torch = "F.ctc_loss(x[0], x[1], x[2], x[3], reduction='none')",
         .call =
             [](In x) { return ctc_loss(x[0], x[1], x[2], x[3], {.reduction = Reduction::none}); },
         .rows = {{floats({9, 3, 7}, -4, 0), ints({3, 4}, 1, 7), ints({3}, 8, 10),
                   ints({3}, 0, 5)}},
         .smooth = false});
    cases.push_back({.name = "ctc_loss/blank",
                     .torch = of_logits + ", blank=3)",
                     .call = [](In x) { return ctc_of_logits(x, {.blank = 3}); },
                     .rows = {{floats({9, 3, 7}), ints({3, 4}, 4, 7), ints({3}, 8, 10),
                               ints({3}, 2, 5, i32)}}});
    cases.push_back(
        {.name = "ctc_loss/concatenated",
         .torch = of_logits + ")",
         .call = [](In x) { return ctc_of_logits(x, {}); },
         .rows = {{floats({9, 3, 7}), ints({9}, 1, 7), ints({3}, 8, 10), ints({3}, 3, 4)}}});
    cases.push_back({.name = "ctc_loss/single",
                     .torch = of_logits + ")",
                     .call = [](In x) { return ctc_of_logits(x, {}); },
                     .rows = {{floats({9, 7}), ints({4}, 1, 7), ints({}, 8, 10), ints({}, 4, 5)}},
                     .layout_bits = false});  // the layout changes the rounding of log_softmax
    // Four labels do not fit into three steps.
    cases.push_back(
        {.name = "ctc_loss/zero_infinity",
         .torch = of_logits + ", zero_infinity=True, reduction='none')",
         .call =
             [](In x) {
                 return ctc_of_logits(x, {.zero_infinity = true, .reduction = Reduction::none});
             },
         .rows = {{floats({3, 4, 5}), ints({4, 4}, 1, 5), ints({4}, 2, 4), ints({4}, 1, 5)}}});
    cases.push_back(
        {.name = "ctc_loss/infinite",
         .torch = of_logits + ", reduction='none')",
         .call = [](In x) { return ctc_of_logits(x, {.reduction = Reduction::none}); },
         .rows = {{floats({3, 2, 5}), ints({2, 4}, 1, 5), ints({2}, 3, 4), ints({2}, 4, 5)}}});
    // PyTorch does not accept an empty batch.
    cases.push_back(
        {.name = "ctc_loss/empty",
         .call = [](In x) { return ctc_of_logits(x, {.reduction = Reduction::sum}); },
         .rows = {{floats({4, 0, 5}), ints({0, 2}, 1, 5), ints({0}, 0, 2), ints({0}, 0, 2)}}});
    add_bad_ctc_calls(cases);
}

}  // namespace axle::tests
