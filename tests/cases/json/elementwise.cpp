#include "core/elementwise.h"

#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using BinaryNumber = Tensor (*)(const Tensor&, Scalar);

void add_unary(NamedOps& ops) {
    const std::pair<const char*, Unary> functions[] = {{"floor", floor},
                                                       {"ceil", ceil},
                                                       {"trunc", trunc},
                                                       {"frac", frac},
                                                       {"sign", sign},
                                                       {"sin", sin},
                                                       {"cos", cos},
                                                       {"tan", tan},
                                                       {"asin", asin},
                                                       {"acos", acos},
                                                       {"atan", atan},
                                                       {"sinh", sinh},
                                                       {"cosh", cosh},
                                                       {"asinh", asinh},
                                                       {"acosh", acosh},
                                                       {"atanh", atanh},
                                                       {"exp2", exp2},
                                                       {"expm1", expm1},
                                                       {"log2", log2},
                                                       {"log10", log10},
                                                       {"log1p", log1p},
                                                       {"erf", erf},
                                                       {"erfc", erfc},
                                                       {"erfinv", erfinv},
                                                       {"lgamma", lgamma},
                                                       {"digamma", digamma},
                                                       {"square", square},
                                                       {"reciprocal", reciprocal},
                                                       {"logical_not", logical_not},
                                                       {"isnan", isnan},
                                                       {"isinf", isinf},
                                                       {"isfinite", isfinite},
                                                       {"bitwise_not", bitwise_not},
                                                       {"selu", selu},
                                                       {"logsigmoid", logsigmoid},
                                                       {"mish", mish},
                                                       {"hardswish", hardswish},
                                                       {"hardsigmoid", hardsigmoid},
                                                       {"relu6", relu6},
                                                       {"tanhshrink", tanhshrink},
                                                       {"neg", neg},
                                                       {"abs", abs},
                                                       {"exp", exp},
                                                       {"log", log},
                                                       {"sqrt", sqrt},
                                                       {"rsqrt", rsqrt},
                                                       {"tanh", tanh},
                                                       {"sigmoid", sigmoid},
                                                       {"relu", relu},
                                                       {"silu", silu},
                                                       {"softsign", softsign},
                                                       {"round", round}};
    for (const auto& [name, f] : functions) ops[name] = [f = f](Call& c) { return f(c.x(0)); };
    ops["gelu"] = [](Call& c) {
        return gelu(c.x(0), c.text("approximate", "none") == "tanh" ? Gelu::tanh : Gelu::erf);
    };
    ops["nan_to_num"] = [](Call& c) {
        return nan_to_num(c.x(0), c.number("nan", 0), c.maybe_number("posinf"),
                          c.maybe_number("neginf"));
    };
    ops["clamp"] = [](Call& c) {
        return clamp(c.x(0), c.maybe_number("min"), c.maybe_number("max"));
    };
}

// Binary ops take a second tensor, or a number as the argument "other".
void add_binary(NamedOps& ops) {
    const std::tuple<const char*, Binary, BinaryNumber> functions[] = {
        {"mul", mul, mul}, {"div", div, div}, {"eq", eq, eq}, {"ne", ne, ne},
        {"lt", lt, lt},    {"le", le, le},    {"gt", gt, gt}, {"ge", ge, ge}};
    for (const auto& [name, f, with_number] : functions)
        ops[name] = [f = f, with_number = with_number](Call& c) {
            return c.has("other") ? with_number(c.x(0), c.scalar("other")) : f(c.x(0), c.x(1));
        };
    // torch.add and torch.sub multiply the second operand by alpha.
    ops["add"] = [](Call& c) {
        if (c.has("other")) return add(c.x(0), c.number("other") * c.number("alpha", 1));
        return c.has("alpha") ? add(c.x(0), mul(c.x(1), c.scalar("alpha"))) : add(c.x(0), c.x(1));
    };
    ops["sub"] = [](Call& c) {
        if (c.has("other")) return sub(c.x(0), c.number("other") * c.number("alpha", 1));
        return c.has("alpha") ? sub(c.x(0), mul(c.x(1), c.scalar("alpha"))) : sub(c.x(0), c.x(1));
    };
    const std::pair<const char*, Binary> tensors[] = {{"maximum", maximum},
                                                      {"minimum", minimum},
                                                      {"floor_divide", floor_divide},
                                                      {"fmod", fmod},
                                                      {"remainder", remainder},
                                                      {"atan2", atan2},
                                                      {"logical_and", logical_and},
                                                      {"logical_or", logical_or},
                                                      {"logical_xor", logical_xor},
                                                      {"bitwise_and", bitwise_and},
                                                      {"bitwise_or", bitwise_or},
                                                      {"bitwise_xor", bitwise_xor},
                                                      {"prelu", prelu}};
    for (const auto& [name, f] : tensors)
        ops[name] = [f = f](Call& c) { return f(c.x(0), c.x(1)); };
    ops["pow"] = [](Call& c) {
        return c.has("exponent") ? pow(c.x(0), c.scalar("exponent")) : pow(c.x(0), c.x(1));
    };
    ops["lerp"] = [](Call& c) {
        return c.has("weight") ? lerp(c.x(0), c.x(1), c.number("weight"))
                               : lerp(c.x(0), c.x(1), c.x(2));
    };
    ops["addcmul"] = [](Call& c) { return addcmul(c.x(0), c.x(1), c.x(2), c.number("value", 1)); };
    ops["addcdiv"] = [](Call& c) { return addcdiv(c.x(0), c.x(1), c.x(2), c.number("value", 1)); };
    ops["where"] = [](Call& c) { return where(c.x(0), c.x(1), c.x(2)); };
    ops["masked_fill"] = [](Call& c) { return masked_fill(c.x(0), c.x(1), c.scalar("value")); };
}

void add_activations(NamedOps& ops) {
    ops["leaky_relu"] = [](Call& c) {
        return leaky_relu(c.x(0), c.number("negative_slope", 0.01));
    };
    ops["elu"] = [](Call& c) { return elu(c.x(0), c.number("alpha", 1)); };
    ops["celu"] = [](Call& c) { return celu(c.x(0), c.number("alpha", 1)); };
    ops["softplus"] = [](Call& c) {
        return softplus(c.x(0), c.number("beta", 1), c.number("threshold", 20));
    };
    ops["hardtanh"] = [](Call& c) {
        return hardtanh(c.x(0), c.number("min_val", -1), c.number("max_val", 1));
    };
    ops["hardshrink"] = [](Call& c) { return hardshrink(c.x(0), c.number("lambd", 0.5)); };
    ops["softshrink"] = [](Call& c) { return softshrink(c.x(0), c.number("lambd", 0.5)); };
    ops["threshold"] = [](Call& c) {
        return threshold(c.x(0), c.number("threshold"), c.number("value"));
    };
    ops["glu"] = [](Call& c) { return glu(c.x(0), c.integer("dim", -1)); };
    ops["softmax"] = [](Call& c) { return softmax(c.x(0), c.integer("dim", -1)); };
    ops["log_softmax"] = [](Call& c) { return log_softmax(c.x(0), c.integer("dim", -1)); };
}

}  // namespace

void add_elementwise_ops(NamedOps& ops) {
    add_unary(ops);
    add_binary(ops);
    add_activations(ops);
}

}  // namespace axle::tests
