#include "tests/cases/json/call.h"

namespace axle::tests {

void add_aliases(NamedOps& ops) {
    const std::pair<const char*, const char*> names[] = {
        // Functions of torch.
        {"absolute", "abs"},
        {"arccos", "acos"},
        {"arccosh", "acosh"},
        {"arcsin", "asin"},
        {"arcsinh", "asinh"},
        {"arctan", "atan"},
        {"arctan2", "atan2"},
        {"arctanh", "atanh"},
        {"clip", "clamp"},
        {"concat", "cat"},
        {"concatenate", "cat"},
        {"divide", "div"},
        {"true_divide", "div"},
        {"fix", "trunc"},
        {"ger", "outer"},
        {"greater", "gt"},
        {"greater_equal", "ge"},
        {"less", "lt"},
        {"less_equal", "le"},
        {"moveaxis", "movedim"},
        {"multiply", "mul"},
        {"negative", "neg"},
        {"not_equal", "ne"},
        {"row_stack", "vstack"},
        {"split_with_sizes", "split"},
        {"subtract", "sub"},
        {"trapz", "trapezoid"},
        // Functions of torch.nn.functional, torch.special and torch.linalg.
        {"expit", "sigmoid"},
        {"gammaln", "lgamma"},
        {"psi", "digamma"},
        // Operators and methods of Tensor.
        {"__getitem__", "index"},
        {"getitem", "index"},
        {"__add__", "add"},
        {"__sub__", "sub"},
        {"__rsub__", "rsub"},
        {"__mul__", "mul"},
        {"__truediv__", "div"},
        {"__matmul__", "matmul"},
        {"__neg__", "neg"},
        {"__abs__", "abs"},
        {"__pow__", "pow"},
        {"__mod__", "remainder"},
        {"__floordiv__", "floor_divide"},
        {"__and__", "bitwise_and"},
        {"__or__", "bitwise_or"},
        {"__xor__", "bitwise_xor"},
        {"__invert__", "bitwise_not"},
        {"__eq__", "eq"},
        {"__ne__", "ne"},
        {"__lt__", "lt"},
        {"__le__", "le"},
        {"__gt__", "gt"},
        {"__ge__", "ge"}};
    for (const auto& [alias, name] : names) ops[alias] = ops.at(name);
}

}  // namespace axle::tests
