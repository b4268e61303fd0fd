// Helpers of the cases of losses.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

// Add the cases of losses with margins and distances, and of ctc_loss. add_losses_cases() calls
// these functions.
void add_margin_losses(Cases& cases);
void add_ctc_loss(Cases& cases);

struct ReductionName {
    const char *suffix, *torch;  // the end of the case's name; PyTorch's name
    Reduction reduction;
};
inline constexpr ReductionName kReductions[] = {{"", "mean", Reduction::mean},
                                                {"/sum", "sum", Reduction::sum},
                                                {"/none", "none", Reduction::none}};

// Adds a case for each reduction. `torch` is PyTorch's call without its last argument. Only the
// first case has all rows.
template <class Call>
void reduced_loss(Cases& cases, const std::string& name, const std::string& torch, Call call,
                  const std::vector<Row>& rows) {
    for (const auto& [suffix, reduction_name, reduction] : kReductions)
        cases.push_back({.name = name + suffix,
                         .torch = str(torch, ", reduction='", reduction_name, "')"),
                         .call = [call, r = reduction](In x) { return call(x, r); },
                         .rows = reduction == Reduction::mean ? rows : std::vector<Row>{rows[0]},
                         .twice = true});
}

inline void loss_case(Cases& cases, const std::string& name, const std::string& torch,
                      std::function<Outputs(In)> call, const std::vector<Row>& rows) {
    cases.push_back(
        {.name = name, .torch = torch, .call = std::move(call), .rows = rows, .twice = true});
}

// Returns rows of two operands of the same shape.
inline std::vector<Row> loss_pairs(double low, double high, double target_low, double target_high) {
    std::vector<Row> rows;
    for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{0, 3}, Shape{3, 67}})
        rows.push_back({floats(shape, low, high), floats(shape, target_low, target_high)});
    return rows;
}

}  // namespace axle::tests
