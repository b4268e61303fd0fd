#include "core/elementwise.h"

#include <cmath>

#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using BinaryNumber = Tensor (*)(const Tensor&, Scalar);

void name_unary(NamedOps& ops) {
    const std::pair<const char*, Unary> functions[] = {{"floor", floor},
                                                       {"ceil", ceil},
                                                       {"trunc", trunc},
                                                       {"frac", frac},
                                                       {"sign", sign},
                                                       {"signbit", signbit},
                                                       {"sinc", sinc},
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
                                                       {"softsign", softsign}};
    for (const auto& [name, f] : functions) ops[name] = [f = f](Call& c) { return f(c.x(0)); };
    ops["round"] = [](Call& c) {
        const std::int64_t decimals = c.integer("decimals", 0);
        if (decimals == 0) return round(c.x(0));
        const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
        return decimals > 0 ? div(round(mul(c.x(0), scale)), scale)
                            : mul(round(div(c.x(0), scale)), scale);
    };
    ops["nan_to_num"] = [](Call& c) {
        return nan_to_num(c.x(0), c.number("nan", 0), c.maybe_number("posinf"),
                          c.maybe_number("neginf"));
    };
    // The bounds are numbers or the inputs 1 and 2.
    ops["clamp"] = [](Call& c) {
        if (c.size() > 1) return clamp(c.x(0), c.optional_x(1), c.optional_x(2));
        return clamp(c.x(0), c.maybe_number("min"), c.maybe_number("max"));
    };
    ops["clamp_min"] = [](Call& c) {
        return c.has("min") ? clamp(c.x(0), c.number("min"), {}) : clamp(c.x(0), c.x(1), Tensor());
    };
    ops["clamp_max"] = [](Call& c) {
        return c.has("max") ? clamp(c.x(0), {}, c.number("max")) : clamp(c.x(0), Tensor(), c.x(1));
    };
    ops["positive"] = [](Call& c) { return c.x(0); };
}

// Return alpha times the second operand of a sum. scaled_number() reads the operand from the
// argument "other", and scaled_operand() from the second input.
Scalar scaled_number(Call& c) {
    const Scalar other = c.scalar("other"), alpha = c.scalar("alpha", 1);
    if (!c.has("alpha")) return other;
    if (other.is_integral() && alpha.is_integral()) return other.to_int64() * alpha.to_int64();
    return other.to_double() * alpha.to_double();
}
Tensor scaled_operand(Call& c) { return c.has("alpha") ? mul(c.x(1), c.scalar("alpha")) : c.x(1); }

// If the first operand is a number, returns the name of its argument, else nullptr.
const char* first_number(const Call& c) {
    for (const char* name : {"self", "input"})
        if (c.has(name)) return name;
    return nullptr;
}

// Adds a function of two operands. One of them can be a number.
void name_binary(NamedOps& ops, const char* name, Binary f) {
    ops[name] = [f](Call& c) {
        if (const char* first = first_number(c)) return f(c.operand(1, first), c.x(0));
        return f(c.x(0), c.operand(1, "other"));
    };
}

// Returns a / b, rounded down or towards 0. As in PyTorch, the gradient is 0.
Tensor rounded_quotient(const Tensor& a, const Tensor& b, const std::string& mode) {
    if (mode != "floor" && mode != "trunc")
        throw ValueError(str("argument rounding_mode: ", mode, " is not supported"));
    const bool integers = !is_floating(a.dtype()) && !is_floating(b.dtype());
    if (integers) return floor_divide(mode == "floor" ? a : sub(a, fmod(a, b)), b);
    if (mode == "trunc") return trunc(div(a, b));
    return a.requires_grad() || b.requires_grad() ? floor(div(a, b)) : floor_divide(a, b);
}

void name_arithmetic(NamedOps& ops) {
    const std::tuple<const char*, Binary, BinaryNumber> functions[] = {
        {"mul", mul, mul}, {"eq", eq, eq}, {"ne", ne, ne}, {"lt", lt, lt},
        {"le", le, le},    {"gt", gt, gt}, {"ge", ge, ge}};
    for (const auto& [name, f, with_number] : functions)
        ops[name] = [f = f, with_number = with_number](Call& c) {
            if (const char* first = first_number(c)) return f(c.operand(1, first), c.x(0));
            return c.has("other") ? with_number(c.x(0), c.scalar("other")) : f(c.x(0), c.x(1));
        };
    ops["div"] = [](Call& c) {
        const std::string mode = c.text("rounding_mode", "");
        if (const char* first = first_number(c)) {
            const Tensor number = c.operand(1, first);
            return mode.empty() ? div(number, c.x(0)) : rounded_quotient(number, c.x(0), mode);
        }
        if (!mode.empty()) return rounded_quotient(c.x(0), c.operand(1, "other"), mode);
        return c.has("other") ? div(c.x(0), c.scalar("other")) : div(c.x(0), c.x(1));
    };
    // These ops multiply the second operand by alpha.
    ops["add"] = [](Call& c) {
        if (const char* first = first_number(c)) return add(c.operand(1, first), c.x(0));
        return c.has("other") ? add(c.x(0), scaled_number(c)) : add(c.x(0), scaled_operand(c));
    };
    ops["sub"] = [](Call& c) {
        if (const char* first = first_number(c)) return sub(c.operand(1, first), c.x(0));
        return c.has("other") ? sub(c.x(0), scaled_number(c)) : sub(c.x(0), scaled_operand(c));
    };
    ops["rsub"] = [](Call& c) {
        const Tensor x = c.has("alpha") ? mul(c.x(0), c.scalar("alpha")) : c.x(0);
        return c.has("other") ? sub(c.scalar("other"), x) : sub(c.x(1), x);
    };
    const std::pair<const char*, Binary> tensors[] = {{"maximum", maximum},
                                                      {"minimum", minimum},
                                                      {"floor_divide", floor_divide},
                                                      {"fmod", fmod},
                                                      {"remainder", remainder},
                                                      {"atan2", atan2},
                                                      {"fmax", fmax},
                                                      {"fmin", fmin},
                                                      {"copysign", copysign},
                                                      {"hypot", hypot},
                                                      {"xlogy", xlogy},
                                                      {"logaddexp", logaddexp},
                                                      {"logaddexp2", logaddexp2},
                                                      {"logical_and", logical_and},
                                                      {"logical_or", logical_or},
                                                      {"logical_xor", logical_xor},
                                                      {"bitwise_and", bitwise_and},
                                                      {"bitwise_or", bitwise_or},
                                                      {"bitwise_xor", bitwise_xor}};
    for (const auto& [name, f] : tensors) name_binary(ops, name, f);
    ops["isclose"] = [](Call& c) {
        return isclose(c.x(0), c.x(1),
                       {.rtol = c.number("rtol", 1e-5),
                        .atol = c.number("atol", 1e-8),
                        .equal_nan = c.flag("equal_nan", false)});
    };
    ops["prelu"] = [](Call& c) { return prelu(c.x(0), c.x(1)); };
    ops["pow"] = [](Call& c) {
        if (const char* base = first_number(c)) return pow(c.scalar(base), c.x(0));
        return c.has("exponent") ? pow(c.x(0), c.scalar("exponent")) : pow(c.x(0), c.x(1));
    };
    ops["lerp"] = [](Call& c) {
        return c.has("weight") ? lerp(c.x(0), c.x(1), c.number("weight"))
                               : lerp(c.x(0), c.x(1), c.x(2));
    };
    ops["addcmul"] = [](Call& c) { return addcmul(c.x(0), c.x(1), c.x(2), c.number("value", 1)); };
    ops["addcdiv"] = [](Call& c) { return addcdiv(c.x(0), c.x(1), c.x(2), c.number("value", 1)); };
}

// Returns the dimension of a softmax. If the argument is missing, functions of torch.nn.functional
// use the first dimension for inputs of 0, 1 or 3 dimensions, else the second dimension.
std::int64_t softmax_dim(Call& c) {
    c.ignore({"_stacklevel"});
    const int n = c.x(0).dim();
    return c.integer("dim", n == 0 || n == 1 || n == 3 ? 0 : 1);
}

void name_activations(NamedOps& ops) {
    ops["gelu"] = [](Call& c) {
        return gelu(c.x(0), c.one_of<Gelu>("approximate", "none",
                                           {{"none", Gelu::erf}, {"tanh", Gelu::tanh}}));
    };
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
    ops["softmax"] = [](Call& c) { return softmax(c.converted(), softmax_dim(c)); };
    ops["log_softmax"] = [](Call& c) { return log_softmax(c.converted(), softmax_dim(c)); };
    ops["softmin"] = [](Call& c) {
        const Tensor x = neg(c.x(0));
        return softmax(to(x, c.dtype("dtype", x.dtype())), softmax_dim(c));
    };
}

}  // namespace

void add_elementwise_ops(NamedOps& ops) {
    name_unary(ops);
    name_arithmetic(ops);
    name_activations(ops);
}

}  // namespace axle::tests
