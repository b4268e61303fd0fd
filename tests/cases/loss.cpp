#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

struct Variant {
    const char* name;
    CrossEntropyOptions options;
};

}  // namespace

void add_loss_cases(Cases& cases) {
    const Variant variants[] = {
        {"", {}},
        {"/sum", {.reduction = Reduction::sum}},
        {"/ignore", {.ignore_index = 2}},
        {"/smoothing", {.label_smoothing = 0.25}},
        {"/everything", {.ignore_index = 2, .label_smoothing = 0.25, .reduction = Reduction::sum}},
        {"/smoothing_ignore", {.ignore_index = 2, .label_smoothing = 0.25}},
        {"/none", {.ignore_index = 2, .label_smoothing = 0.25, .reduction = Reduction::none}},
    };
    for (const auto& [name, options] : variants) {
        cases.push_back({.name = str("cross_entropy", name),
                         .call = [o = options](In x) { return cross_entropy(x[0], x[1], o); },
                         .rows = {{floats({4, 5}), ints({4}, 0, 5)},
                                  {floats({1, 3}), ints({1}, 0, 2)},
                                  {floats({0, 3}), ints({0}, 0, 3)},
                                  {floats({7, 67}, -8, 8), ints({7}, 0, 9)}},
                         .large = {floats({131, 521}), ints({131}, 0, 521)}});
        if (options.reduction == Reduction::none) continue;
        cases.push_back(
            {.name = str("linear_cross_entropy", name),
             .call = [o = options](In x) { return linear_cross_entropy(x[0], x[1], x[2], o); },
             .rows = {{floats({4, 3}), floats({5, 3}), ints({4}, 0, 5)},
                      {floats({1, 2}), floats({3, 2}), ints({1}, 0, 2)},
                      {floats({0, 2}), floats({3, 2}), ints({0}, 0, 3)},
                      {floats({7, 9}), floats({67, 9}), ints({7}, 0, 9)}},
             .large = {floats({131, 33}), floats({521, 33}), ints({131}, 0, 521)},
             .layout_bits = false,
             // Half logits are rounded before the softmax; in f32, the sums have many terms.
             .tolerance = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 8e-2}});
    }
    cases.push_back({.name = "cross_entropy/all_ignored",
                     .call = [](In x) { return cross_entropy(x[0], x[1]); },
                     .rows = {{floats({3, 5}), ints({3}, -100, -99)}},
                     .gradient = false});
    cases.push_back(
        {.name = "cross_entropy/no_gradient_from_ignored",
         .call = [](In x) { return cross_entropy(x[0], x[1], {.reduction = Reduction::sum}); },
         .rows = {{floats({3, 5}), ints({3}, -100, -99)}}});

    const std::vector<Row> pairs = {{floats({3, 4}), floats({3, 4})},
                                    {floats({}), floats({})},
                                    {floats({0, 3}), floats({0, 3})},
                                    {floats({3, 67}), floats({3, 67})}};
    const Row large = {floats({257, 263}), floats({257, 263})};
    for (const auto& [name, reduction] :
         {std::pair{"mse_loss", Reduction::mean}, std::pair{"mse_loss/sum", Reduction::sum},
          std::pair{"mse_loss/none", Reduction::none}})
        cases.push_back({.name = name,
                         .call = [r = reduction](In x) { return mse_loss(x[0], x[1], r); },
                         .rows = pairs,
                         .large = large,
                         .twice = true});
}

}  // namespace axle::tests
