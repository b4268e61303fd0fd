#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

void add_checkpoint_cases(Cases& cases) {
    const std::vector<Row> rows = {{floats({3, 4}), floats({4})},
                                   {floats({0, 4}), floats({4})},
                                   {floats({}), floats({1})},
                                   {floats({3, 67}), floats({1, 67})}};
    cases.push_back(
        {.name = "checkpoint",
         .torch = "torch.tanh(x[0] * x[1]) * x[0]",
         .call =
             [](In x) {
                 return checkpoint(
                     [](In inner) { return mul(tanh(mul(inner[0], inner[1])), inner[0]); }, x);
             },
         .rows = rows,
         .large = {floats({257, 263}), floats({263})}});
    // The recomputation must draw the same mask. Under autocast, exp() computes in f32.
    cases.push_back(
        {.name = "checkpoint/dropout",
         .call =
             [](In x) {
                 const Tensor y = checkpoint(
                     [](In inner) { return dropout(exp(mul(inner[0], inner[1])), 0.5); }, x);
                 return add(y, dropout(x[0], 0.5));
             },
         .rows = rows,
         .autocast = Autocast::f32});
    cases.push_back({.name = "checkpoint/nested",
                     .torch = "torch.tanh(torch.exp(x[1] * x[0]))",
                     .call =
                         [](In x) {
                             const auto inner = [](In a) { return exp(mul(a[0], a[1])); };
                             return checkpoint(
                                 [inner](In a) {
                                     return tanh(checkpoint(inner, {a[1], a[0]}));
                                 },
                                 x);
                         },
                     .rows = rows,
                     .autocast = Autocast::f32});
}

}  // namespace axle::tests
