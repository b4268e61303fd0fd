// Private to optim: tables of gradients for the kernels of clipping and unscaling.
#pragma once

#include <utility>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "core/tensor.h"
#include "kernels/ops/optimizer.h"

namespace axle::optim {

// A kernel table of the gradients of a list of parameters. The table contains copies of gradients
// that are not contiguous. For a sharded parameter, it contains the gradient of the local part.
class GradTable {
  public:
    // Throws DeviceError if the gradients are on different devices, and UsageError if a parameter
    // is undefined. The messages begin with `op`.
    GradTable(const char* op, const std::vector<Tensor>& params) {
        for (const Tensor& param : params) {
            if (!param.defined())
                throw UsageError(
                    str(op, ": a parameter is undefined: parameter ", &param - params.data()));
            Tensor grad = autograd::local_part(param).grad();
            if (!grad.defined()) continue;
            if (!grads_.empty() && grad.device() != device())
                throw DeviceError(str(op, ": gradients must be on one device: they are on ",
                                      device(), " and ", grad.device()));
            Tensor values = grad.is_contiguous() ? grad : contiguous(grad);
            kernels::append(runs_, kernels::Run{.data = values.raw_data(),
                                                .numel = values.numel(),
                                                .dtype = values.dtype()});
            if (!values.is_same(grad)) strided_.emplace_back(grad, values);
            if (grad.dtype() == f64) norm_dtype_ = f64;
            grads_.push_back(std::move(grad));
        }
    }

    Device device() const { return grads_.empty() ? Device::cpu() : grads_[0].device(); }
    const std::vector<kernels::Run>& runs() const { return runs_; }
    // Returns f64 if any gradient is f64, otherwise f32.
    DType norm_dtype() const { return norm_dtype_; }

    // Writes the copies back and increments the versions of the gradients. Call it after a kernel
    // has modified the gradients.
    void changed() {
        for (auto& [grad, values] : strided_) grad.copy_(values);
        for (const Tensor& grad : grads_) grad.impl()->storage->bump_version();
    }

  private:
    std::vector<Tensor> grads_;
    std::vector<kernels::Run> runs_;
    std::vector<std::pair<Tensor, Tensor>> strided_;
    DType norm_dtype_ = f32;
};

}  // namespace axle::optim
