// Repetition of elements. Integer counts expand new dimensions. If the counts are a tensor, the
// positions of the repeated elements are computed on the CPU.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns x repeated along d. If `each` is true, the copies of an element follow each other;
// otherwise the copies of the whole dimension do.
Tensor repeated(const Tensor& x, int d, std::int64_t count, bool each) {
    if (count == 1) return x;
    const Tensor single = unsqueeze(x, each ? d + 1 : d);
    Shape shape = single.shape();
    shape[each ? d + 1 : d] = count;
    const Tensor copies = expand(single, shape);
    shape = x.shape();
    shape[d] *= count;
    return reshape(copies, shape);
}

Tensor copy_unless_new(const Tensor& y, const Tensor& x) {
    return y.impl()->storage == x.impl()->storage ? clone(y) : y;
}

Tensor repeated_along_all(const Tensor& x, const Dims& repeats) {
    Tensor y = x;
    for (int i = 0; i < repeats.size() - x.dim(); ++i) y = unsqueeze(y, 0);
    for (int d = y.dim() - 1; d >= 0; --d) y = repeated(y, d, repeats[d], false);
    return copy_unless_new(y, x);
}

void check_counts(const char* op, const Dims& repeats) {
    for (const std::int64_t n : repeats)
        if (n < 0)
            throw ValueError(str(op, ": the numbers of copies must not be negative: ", repeats));
}

// Returns the positions 0, 1, ... of the counts, each repeated as often as its count. Throws
// DeviceError on the meta device, and ValueError for a negative count.
Tensor repeated_positions(const Tensor& counts) {
    if (counts.device().is_meta())
        throw DeviceError(
            str("repeat_interleave: repeats on the meta device have no values: shape ",
                counts.shape()));
    const Tensor host = contiguous(to(to(counts.detach(), Device::cpu()), i64));
    const auto* values = host.data<std::int64_t>();
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < host.numel(); ++i) {
        if (values[i] < 0)
            throw ValueError(str("repeat_interleave: the repeats must not be negative: ", values[i],
                                 " at position ", i));
        positions.insert(positions.end(), static_cast<std::size_t>(values[i]), i);
    }
    return tensor(positions);
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& repeats) {
    const profiler::OpScope scope("repeat");
    check_device("repeat", {&x});
    check_counts("repeat", repeats);
    if (repeats.size() < x.dim())
        throw ShapeError(
            str("repeat: needs a number for each dimension: repeats ", repeats, ", x ", x.shape()));
    return repeated_along_all(x, repeats);
}

Tensor tile(const Tensor& x, const Dims& repeats) {
    const profiler::OpScope scope("tile");
    check_device("tile", {&x});
    check_counts("tile", repeats);
    Dims all = repeats;
    while (all.size() < x.dim()) all.insert(0, 1);
    return repeated_along_all(x, all);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<std::int64_t> dim) {
    const profiler::OpScope scope("repeat_interleave");
    check_device("repeat_interleave", {&x});
    check_counts("repeat_interleave", repeats);
    const Tensor source = dim && x.dim() > 0 ? x : reshape(x, -1);
    const int d = wrap_dim("repeat_interleave", dim.value_or(0), source.dim());
    return copy_unless_new(repeated(source, d, repeats, true), x);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<std::int64_t> dim) {
    const profiler::OpScope scope("repeat_interleave");
    check_device("repeat_interleave", {&x, &repeats});
    check_index_dtype("repeat_interleave", repeats, "repeats");
    const Tensor source = dim && x.dim() > 0 ? x : reshape(x, -1);
    const int d = wrap_dim("repeat_interleave", dim.value_or(0), source.dim());
    const std::int64_t size = source.shape()[d];
    if (repeats.dim() > 1 || (repeats.numel() != 1 && repeats.numel() != size))
        throw ShapeError(str("repeat_interleave: the repeats must be [", size,
                             "] or have one "
                             "element: repeats ",
                             repeats.shape(), ", x ", x.shape()));
    const Tensor counts = expand(reshape(repeats, -1), size);
    return index_select(source, d, to(repeated_positions(counts), x.device()));
}

}  // namespace axle
