// Implements the hooks that reduce a bucket with one all_reduce.
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/parallel/data_parallel.h"
#include "dist/parallel/mean.h"

namespace axle::dist {
namespace {

class Mean : public CommHook {
  public:
    explicit Mean(DType wire) : wire_(wire) {}
    Pending start(GradientBucket& bucket, ProcessGroup& group) override {
        return start_mean(bucket.buffer, group, wire_);
    }

  private:
    DType wire_;
};

}  // namespace

CommHook::Pending start_mean(const Tensor& x, ProcessGroup& group, DType wire) {
    const NoGrad no_grad;
    if (!is_half(wire)) {
        Work work = group.all_reduce_async(x, ReduceOp::mean);
        return {[work]() mutable { work.wait(); }};
    }
    const Tensor narrow = to(mul(x, 1.0 / group.size()), wire);
    Work work = group.all_reduce_async(narrow);
    return {[narrow, work, target = x]() mutable {
        const NoGrad inner;
        work.wait();
        target.copy_(narrow);
    }};
}

std::shared_ptr<CommHook> all_reduce_hook() { return std::make_shared<Mean>(f32); }
std::shared_ptr<CommHook> fp16_compress_hook() { return std::make_shared<Mean>(f16); }
std::shared_ptr<CommHook> bf16_compress_hook() { return std::make_shared<Mean>(bf16); }

}  // namespace axle::dist
