#include "dist/tensor_parallel/slices.h"

#include <vector>

#include "core/autograd/autograd.h"

namespace axle::dist {

Tensor GroupSlice::gather(const Tensor& slice) const {
    const NoGrad no_grad;
    const Tensor all = group_->all_gather(slice.detach());
    std::vector<Tensor> parts;
    for (int rank = 0; rank < group_->size(); rank += copies()) parts.push_back(all[rank]);
    return layout().join(parts);
}

}  // namespace axle::dist
