#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

void add_convert_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({4, 5})}, {floats({})}, {floats({2, 0, 3})}, {floats({3, 1})}, {floats({3, 67})}};
    const Row large = {floats({257, 263})};
    // Finite differences cannot measure the slope because of rounding.
    cases.push_back({.name = "to",
                     .torch = "x[0].to(torch.float32)",
                     .call = [](In x) { return to(x[0], f32); },
                     .rows = rows,
                     .large = large,
                     .smooth = false});
    cases.push_back({.name = "to/f64",
                     .torch = "x[0].to(torch.float64)",
                     .call = [](In x) { return to(x[0], f64); },
                     .rows = rows,
                     .twice = true,
                     .own_dtype = true});
    cases.push_back({.name = "to/bf16",
                     .torch = "x[0].to(torch.bfloat16)",
                     .call = [](In x) { return to(x[0], bf16); },
                     .rows = rows,
                     .smooth = false});
    cases.push_back({.name = "to/f16",
                     .torch = "x[0].to(torch.float16)",
                     .call = [](In x) { return to(x[0], f16); },
                     .rows = rows,
                     .smooth = false});
    for (const DType dtype : {i64, i32, boolean})
        cases.push_back({.name = str("to/", name_of(dtype)),
                         .torch = str("x[0].to(torch.", name_of(dtype), ")"),
                         .call = [dtype](In x) { return to(x[0], dtype); },
                         .rows = rows,
                         .gradient = false});
    cases.push_back({.name = "to/float_of_ints",
                     .torch = "x[0].to(torch.float64)",
                     .call = [](In x) { return to(x[0], f64); },
                     .rows = {{ints({3, 5}, -9, 9)}, {ints({67}, 0, 255, u8)}, {mask({7})}},
                     .gradient = false});
    cases.push_back({.name = "to/device",
                     .torch = "x[0].to('cpu')",
                     .call = [](In x) { return to(x[0], x[0].device()); },
                     .rows = rows,
                     .twice = true,
                     .check =
                         [](In x, const Outputs& y) {
                             return y[0].is_same(x[0]) ? "" : "should be the tensor itself";
                         }});
    cases.push_back({.name = "contiguous",
                     .torch = "x[0].contiguous()",
                     .call = [](In x) { return contiguous(x[0]); },
                     .rows = rows,
                     .large = large,
                     .twice = true,
                     .check =
                         [](In, const Outputs& y) {
                             return y[0].is_contiguous() ? "" : "should be contiguous";
                         }});
    cases.push_back(
        {.name = "contiguous/transposed",
         .torch = "x[0].T.contiguous()",
         .call = [](In x) { return contiguous(transpose(x[0], 0, 1)); },
         .rows = {{floats({4, 5})}, {floats({0, 3})}, {floats({1, 6})}, {floats({17, 67})}},
         .large = {floats({257, 263})},
         .twice = true});
    cases.push_back({.name = "clone",
                     .torch = "x[0].clone()",
                     .call = [](In x) { return clone(x[0]); },
                     .rows = rows,
                     .large = large,
                     .twice = true,
                     .check =
                         [](In x, const Outputs& y) {
                             const bool own = y[0].impl()->storage != x[0].impl()->storage;
                             return own ? "" : "should have memory of its own";
                         }});
}

}  // namespace axle::tests
