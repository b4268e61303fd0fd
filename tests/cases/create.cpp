#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void constant(Cases& cases, std::string name, std::function<Outputs(In)> call) {
    cases.push_back(
        {.name = std::move(name), .call = std::move(call), .rows = no_inputs(), .gradient = false});
}

void like(Cases& cases, std::string name, std::function<Outputs(In)> call, bool values = true) {
    cases.push_back({.name = std::move(name),
                     .call = std::move(call),
                     .rows = {{floats({2, 3})}, {floats({})}, {floats({0, 4})}, {ints({5}, 0, 9)}},
                     .golden = values,
                     .values = values,
                     .gradient = false,
                     .check = [](In, const Outputs& y) {
                         return y[0].is_contiguous() ? "" : "should be contiguous";
                     }});
}

}  // namespace

void add_create_cases(Cases& cases) {
    cases.push_back({.name = "empty",
                     .call =
                         [](In) {
                             return empty({2, 0, 3});
                         },
                     .rows = no_inputs(),
                     .golden = false,
                     .values = false,
                     .gradient = false,
                     .check =
                         [](In, const Outputs& y) {
                             return y[0].shape() == Shape{2, 0, 3} ? "" : "should be [2, 0, 3]";
                         }});
    like(
        cases, "empty_like", [](In x) { return empty_like(x[0]); }, false);

    constant(cases, "zeros", [](In) { return zeros({2, 3}); });
    constant(cases, "zeros/scalar", [](In) { return zeros({}, {i64}); });
    constant(cases, "ones", [](In) { return ones({3, 67}, {f64}); });
    constant(cases, "ones/empty", [](In) { return ones({0, 3}, {boolean}); });
    constant(cases, "full", [](In) { return full({2, 3}, 1.5); });
    constant(cases, "full/ints", [](In) { return full({7}, -3, {i32}); });
    like(cases, "zeros_like", [](In x) { return zeros_like(x[0]); });
    like(cases, "ones_like", [](In x) { return ones_like(x[0]); });
    like(cases, "full_like", [](In x) { return full_like(x[0], 3); });

    constant(cases, "arange", [](In) { return arange(5); });
    constant(cases, "arange/none", [](In) { return arange(0); });
    constant(cases, "arange/steps", [](In) { return arange(1, 11, 3); });
    constant(cases, "arange/backwards", [](In) { return arange(5, -1, -2); });
    constant(cases, "arange/floats", [](In) { return arange(0.0, 1.0, 0.1, {f64}); });
    constant(cases, "arange/f32", [](In) { return arange(-1.0, 1.0, 0.25, {f32}); });

    constant(cases, "tensor", [](In) {
        return tensor(std::vector<double>{1, -2.5, 3, 4, 5, 6}, {2, 3});
    });
    constant(cases, "tensor/ints", [](In) {
        return tensor(std::vector<std::int64_t>{1, std::int64_t{1} << 40, -3}, {3, 1});
    });
    constant(cases, "tensor/none", [](In) { return tensor(std::vector<double>{}, {0, 2}); });
}

}  // namespace axle::tests
