// Ops with masks, nonzero(), argwhere() and isin().
#include <bit>
#include <cstdint>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/selection/indices.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

void check_mask(const char* op, const Tensor& mask) {
    if (mask.dtype() != boolean)
        throw DTypeError(str(op, ": the mask must be boolean: ", mask.dtype()));
}

Tensor positions_other_than_zero(const char* op, const Tensor& x) {
    check_device(op, {&x});
    const Tensor mask = x.dtype() == boolean ? x : ne(x.detach(), 0);
    const std::vector<Tensor> positions = positions_of_true(op, at_least_1d(mask));
    return narrow(stack(positions, 1), 1, 0, x.dim());
}

// The largest number of test elements that isin() compares one by one.
constexpr std::int64_t kFew = 16;

// Returns for each of the values [n] whether it is in `sorted` [m]. Uses a binary search. m is
// positive.
Tensor in_sorted(const Tensor& values, const Tensor& sorted) {
    const std::int64_t m = sorted.numel();
    const TensorOptions options{.dtype = i64, .device = values.device()};
    // `below` is the number of elements that are known to be less than the value.
    Tensor below = zeros(values.shape(), options);
    for (auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(m)));
         step > 0; step /= 2) {
        const Tensor next = add(below, step);
        const Tensor last = index_select(sorted, 0, clamp(sub(next, 1), 0, m - 1));
        below = where(logical_and(le(next, m), lt(last, values)), next, below);
    }
    return eq(index_select(sorted, 0, clamp(below, 0, m - 1)), values);
}

// Throws IndexError if masked_scatter() would need more elements than source has; on a GPU, the
// error is reported. `place` is the mask as a vector, and `order` has the positions in source.
void check_source(const Tensor& place, const Tensor& order, const Tensor& source) {
    constexpr const char* kOp = "masked_scatter";
    const std::int64_t available = source.numel();
    if (!place.device().is_cpu())
        return available == 0 ? check_index_range(kOp, to(place, i64), 1)
                              : check_index_range(kOp, order, available);
    const std::int64_t selected = sum(place).item_int();
    if (selected > available)
        throw IndexError(str(kOp,
                             ": source must have an element for each element that the mask "
                             "selects: the mask selects ",
                             selected, ", source ", source.shape(), " has ", available));
}

}  // namespace

Tensor nonzero(const Tensor& x) {
    const profiler::OpScope scope("nonzero");
    return positions_other_than_zero("nonzero", x);
}
Tensor argwhere(const Tensor& x) {
    const profiler::OpScope scope("argwhere");
    return positions_other_than_zero("argwhere", x);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
    const profiler::OpScope scope("masked_select");
    check_device("masked_select", {&x, &mask});
    check_mask("masked_select", mask);
    const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
    const Tensor selected = positions_of_true("masked_select", reshape(expand(mask, shape), -1))[0];
    return index_select(reshape(expand(x, shape), -1), 0, selected);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
    const profiler::OpScope scope("masked_scatter");
    check_device("masked_scatter", {&x, &mask, &source});
    check_mask("masked_scatter", mask);
    check_same_dtype("masked_scatter", x, source, "x", "source");
    const Shape shape = broadcast_shapes("masked_scatter", x.shape(), mask.shape());
    const Tensor place = reshape(expand(mask, shape), -1);
    // The position in source of each element for which the mask is true, and elsewhere 0.
    const Tensor order = mul(sub(cumsum(place, 0), 1), place);
    check_source(place, order, source);
    if (source.numel() == 0)
        return record(
            "masked_scatter", clone(expand(x.detach(), shape)), {x, source},
            [shape = source.shape()](const Grads& dy, Needs) -> Grads {
                return {dy[0], zeros(shape, {.dtype = dy[0].dtype(), .device = dy[0].device()})};
            });
    const Tensor values = reshape(index_select(reshape(source, -1), 0, order), shape);
    return where(expand(mask, shape), values, expand(x, shape));
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert) {
    const profiler::OpScope scope("isin");
    const Device device = check_device("isin", {&elements, &test_elements});
    check_compute("isin", elements, "elements");
    check_compute("isin", test_elements, "test_elements");
    const NoGrad no_grad;
    const DType common = promote(elements, test_elements);
    const Tensor values = reshape(to(elements, common), -1);
    const Tensor tests = reshape(to(test_elements, common), -1);
    Tensor found = zeros(values.shape(), {.dtype = boolean, .device = device});
    if (tests.numel() > kFew)
        found = in_sorted(values, sort(tests, 0).first);
    else
        for (std::int64_t i = 0; i < tests.numel(); ++i)
            found = logical_or(found, eq(values, select(tests, 0, i)));
    return reshape(invert ? logical_not(found) : found, elements.shape());
}

Tensor isin(const Tensor& elements, Scalar test_element, bool invert) {
    const profiler::OpScope scope("isin");
    check_device("isin", {&elements});
    check_compute("isin", elements, "elements");
    const NoGrad no_grad;
    return invert ? ne(elements, test_element) : eq(elements, test_element);
}

}  // namespace axle
