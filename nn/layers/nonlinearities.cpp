#include "nn/layers/nonlinearities.h"

#include "nn/init.h"

namespace axle::nn {

PReLU::PReLU(std::int64_t num_parameters, double init) {
    if (num_parameters < 1)
        throw ValueError(str("PReLU: num_parameters must be positive: ", num_parameters));
    weight = init::parameter({num_parameters});
    init::constant_(weight, init);
}

}  // namespace axle::nn
