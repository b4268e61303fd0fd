#include "nn/layers/nonlinearities.h"

#include "core/check.h"
#include "nn/init.h"
#include "nn/layers/activation.h"

namespace axle::nn {

Tensor Unflatten::forward(const Tensor& x) {
    check_device("Unflatten", {&x});
    const int d = wrap_dim("Unflatten", dim, x.dim());
    Shape whole = x.shape();
    std::int64_t known = 1;
    int unknown = 0;
    for (const std::int64_t size : sizes) size == -1 ? ++unknown : known *= size;
    const std::int64_t size = x.dim() == 0 ? -1 : whole[d];
    const bool fits = unknown == 0 ? known == size : unknown == 1 && known > 0 && size % known == 0;
    if (x.dim() == 0 || sizes.empty() || !fits)
        throw ShapeError(str("Unflatten: dimension ", dim, " cannot be divided into sizes ", sizes,
                             ": x is ", whole));
    whole.erase(d);
    for (int i = 0; i < sizes.size(); ++i)
        whole.insert(d + i, sizes[i] == -1 ? size / known : sizes[i]);
    return x.reshape(whole);
}

PReLU::PReLU(std::int64_t num_parameters, double init) {
    if (num_parameters < 1)
        throw ValueError(str("PReLU: num_parameters must be positive: ", num_parameters));
    weight = init::parameter({num_parameters});
    init::constant_(weight, init);
}

}  // namespace axle::nn
