#include "dist/sequence/self_attention.h"

#include "core/autograd/random_part.h"
#include "core/check.h"

namespace axle::dist {

void check_self_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
    check_device(op, {&q, &k, &v});
    if (q.dim() != 4 || k.dim() != 4 || v.shape() != k.shape())
        throw ShapeError(str(op, ": q, k and v must have 4 dimensions [batch, heads, ",
                             "length, head size], and k and v the same shape: q ", q.shape(),
                             ", k ", k.shape(), ", v ", v.shape()));
    if (q.size(2) != k.size(2))
        throw UsageError(str(op, ": queries and keys must be the same tokens (self-attention): q ",
                             q.shape(), ", k ", k.shape()));
}

kernels::WeightGrid whole_grid(const Tensor& q, std::int64_t length) {
    const RandomPart& part = RandomPartGuard::current();
    return {.heads = q.size(1) * part.parts,
            .queries = length,
            .keys = length,
            .first_head = q.size(1) * part.part};
}

}  // namespace axle::dist
