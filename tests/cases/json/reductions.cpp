#include "tests/cases/json/call.h"

namespace axle::tests {

void add_reduction_ops(NamedOps& ops) {
    ops["sum"] = [](Call& c) { return sum(c.x(0), c.dims("dim", {}), c.flag("keepdim", false)); };
    ops["mean"] = [](Call& c) { return mean(c.x(0), c.dims("dim", {}), c.flag("keepdim", false)); };
    ops["var"] = [](Call& c) {
        return var(c.x(0), c.dims("dim", {}), c.number("correction", 1), c.flag("keepdim", false));
    };
    // torch.max and torch.min of a whole tensor.
    ops["max"] = [](Call& c) { return max(c.x(0)); };
    ops["min"] = [](Call& c) { return min(c.x(0)); };
    ops["argmax"] = [](Call& c) {
        return argmax(c.x(0), c.integer("dim"), c.flag("keepdim", false));
    };
    ops["argmin"] = [](Call& c) {
        return argmin(c.x(0), c.integer("dim"), c.flag("keepdim", false));
    };
    ops["cumsum"] = [](Call& c) { return cumsum(c.x(0), c.integer("dim")); };
    ops["cumprod"] = [](Call& c) { return cumprod(c.x(0), c.integer("dim")); };
    ops["topk"] = [](Call& c) {
        return topk(c.x(0), c.integer("k"), c.integer("dim", -1), c.flag("largest", true));
    };
    ops["sort"] = [](Call& c) {
        return sort(c.x(0), c.integer("dim", -1), c.flag("descending", false));
    };
    ops["argsort"] = [](Call& c) {
        return argsort(c.x(0), c.integer("dim", -1), c.flag("descending", false));
    };
}

}  // namespace axle::tests
