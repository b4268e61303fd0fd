#include "core/ops/recurrent/recurrent.h"

#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

void add_recurrent_cases(Cases& cases) {
    // Returns the inputs of one step: two tensors of gates [batch, gates * hidden], and the state.
    const auto row = [](std::int64_t gates, std::int64_t batch, std::int64_t hidden) {
        const Shape sums = {batch, gates * hidden};
        return Row{floats(sums), floats(sums), floats({batch, hidden})};
    };
    const auto add = [&](const std::string& name, std::int64_t gates,
                         std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = name + "(x[0], x[1], x[2])",
                         .call = std::move(call),
                         .rows = {row(gates, 3, 5), row(gates, 2, 131), row(gates, 0, 4)},
                         .large = row(gates, 64, 512),
                         .twice = true});
    };
    add("lstm_step", 4, [](In x) { return lstm_step(x[0], x[1], x[2]); });
    add("gru_step", 3, [](In x) { return gru_step(x[0], x[1], x[2]); });
    // Only the second output contributes to the gradient.
    cases.push_back({.name = "lstm_step/state",
                     .torch = "lstm_step(x[0], x[1], x[2])[1]",
                     .call = [](In x) { return lstm_step(x[0], x[1], x[2]).second; },
                     .rows = {row(4, 2, 3)},
                     .twice = true});
    refuses<ShapeError>(cases, "lstm_step", {"[2, 8]", "[2, 3]"}, [] {
        lstm_step(floats_of({2, 8}), floats_of({2, 8}), floats_of({2, 3}));
    });
    refuses<ShapeError>(cases, "gru_step", {"[2, 9]", "[3, 9]"}, [] {
        gru_step(floats_of({2, 9}), floats_of({3, 9}), floats_of({2, 3}));
    });
    refuses<DTypeError>(cases, "gru_step", {"float64"}, [] {
        gru_step(floats_of({2, 9}), floats_of({2, 9}), to(floats_of({2, 3}), f64));
    });
    refuses<UsageError>(cases, "lstm_step", {}, [] {
        lstm_step(floats_of({2, 8}), floats_of({2, 8}), Tensor());
    });
    refuses<UsageError>(cases, "gru_step", {}, [] {
        gru_step(floats_of({2, 9}), floats_of({2, 9}), Tensor());
    });
}

}  // namespace axle::tests
