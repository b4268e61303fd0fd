// Functions that add the cases of an op with one operand.
#pragma once

#include <string>

#include "tests/cases/cases.h"

namespace axle::tests {

using Function = Tensor (*)(const Tensor&);

// Adds cases of several shapes with operands between low and high, and a case of special values.
inline void unary(Cases& cases, const std::string& name, const char* torch, double low, double high,
                  Function f) {
    const auto call = [f](In x) { return f(x[0]); };
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = call,
                     .rows = {{floats({7}, low, high)},
                              {floats({}, low, high)},
                              {floats({2, 0, 3}, low, high)},
                              {floats({3, 1}, low, high)},
                              {floats({3, 67}, low, high)}},
                     .large = {floats({257, 263}, low, high)},
                     .twice = true});
    cases.push_back({.name = name + "/specials",
                     .torch = torch,
                     .call = call,
                     .rows = {{specials({11})}},
                     .gradient = false});
}

// Adds a case of integers and booleans.
inline void on_ints(Cases& cases, const std::string& name, const char* torch, Function f) {
    cases.push_back({.name = name + "/ints",
                     .torch = torch,
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ints({3, 5}, 1, 9)}, {ints({67}, 1, 9, i32)}, {mask({7})}},
                     .gradient = false});
}

// Adds a case of inputs far from 0, at which the function is constant or linear to rounding and
// intermediate results, such as exp(x), can overflow. The gradient must not be NaN.
inline void saturates(Cases& cases, const std::string& name, const char* torch, Function f) {
    cases.push_back(
        {.name = name + "/far",
         .torch = torch,
         .call = [f](In x) { return f(x[0]); },
         .rows = {{floats({67}, -32, 32)}, {floats({9}, 80, 96)}, {floats({9}, -96, -80)}},
         .twice = true});
}

// Adds cases whose operands are integers, in floating-point and integer dtypes, for functions that
// round or have kinks at integers.
inline void kinked(Cases& cases, const std::string& name, const char* torch, Function f) {
    cases.push_back({.name = name + "/ties",
                     .torch = torch,
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ties({67})}},
                     .smooth = false});
    cases.push_back({.name = name + "/ints",
                     .torch = torch,
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ints({3, 5}, -9, 9)}, {ints({67}, -9, 9, i32)}},
                     .gradient = false});
}

}  // namespace axle::tests
