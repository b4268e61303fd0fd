// Functions that add the cases of a reduction.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cases/cases.h"

namespace axle::tests {

using Reduce = std::function<Tensor(const Tensor&, const Dims&, bool)>;
using MakeInput = std::function<Input(const Shape&)>;

// Adds cases that reduce over all dimensions, the last, the first and two dimensions.
inline void reduces(Cases& cases, const std::string& name, const std::string& torch,
                    const MakeInput& make, const Reduce& f, bool twice = true) {
    const auto add = [&](const char* variant, std::vector<Row> rows, const Dims& dims, bool keep) {
        std::string list;
        for (const std::int64_t dim : dims) list += str(dim, ", ");
        cases.push_back(
            {.name = name + variant,
             .torch = str(torch, "dim=(", list, "), keepdim=", keep ? "True" : "False", ")"),
             .call = [=](In x) { return f(x[0], dims, keep); },
             .rows = std::move(rows),
             .twice = twice});
    };
    add("", {{make({3, 4})}, {make({0, 4})}, {make({3, 67})}, {make({2})}}, -1, false);
    cases.back().large = {make({257, 263})};
    add("/first", {{make({3, 4})}, {make({67, 3})}, {make({5, 1, 3})}}, 0, true);
    add("/two", {{make({2, 3, 4})}, {make({2, 3, 67})}}, {0, -1}, false);
    cases.push_back({.name = name + "/all",
                     .torch = str(torch, "dim=tuple(range(x[0].dim())))"),
                     .call = [=](In x) { return f(x[0], {}, false); },
                     .rows = {{make({3, 4})}, {make({2, 3, 2, 2})}},
                     .twice = twice});
}

// Adds a case without finite differences.
inline OpCase& plain(Cases& cases, const std::string& name, const std::string& torch,
                     std::vector<Row> rows, std::function<Outputs(In)> call,
                     bool gradient = false) {
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .gradient = gradient,
                     .smooth = false});
    return cases.back();
}

}  // namespace axle::tests
