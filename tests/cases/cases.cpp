#include "tests/cases/cases.h"

#include "core/ops.h"

namespace axle::tests {

OpCase& case_named(Cases& cases, const std::string& name) {
    for (OpCase& c : cases)
        if (c.name == name) return c;
    throw UsageError("case_named: no op case has this name: " + name);
}

OpCase& first_case(Cases& cases, const std::string& op) {
    for (OpCase& c : cases)
        if (c.op() == op) return c;
    throw UsageError("first_case: no op case tests this op: " + op);
}

void set_autocast(Cases& cases, Autocast autocast, std::initializer_list<const char*> ops) {
    for (const char* op : ops) {
        first_case(cases, op);  // throws if the name is misspelled
        for (OpCase& c : cases)
            if (c.op() == op) c.autocast = autocast;
    }
}

Tensor floats_of(const Shape& shape) { return ones(shape); }
Tensor ints_of(const Shape& shape) { return ones(shape, {i64}); }
Tensor bools_of(const Shape& shape) { return ones(shape, {boolean}); }
Tensor indices(const std::vector<std::int64_t>& values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace axle::tests
