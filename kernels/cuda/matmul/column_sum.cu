// Column sums, computed as a reduction of the first dimension.
#include "kernels/ops/matmul.h"
#include "kernels/ops/reduce.h"

namespace axle::kernels {

void column_sum(Cuda& on, ConstView x, View y) {
    View row = y;
    row.ndim = 2;
    row.shape[0] = 1, row.stride[0] = 0;
    row.shape[1] = y.shape[0], row.stride[1] = y.stride[0];
    sum(on, x, row);
}

}  // namespace axle::kernels
