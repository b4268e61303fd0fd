#include "dist/parallel/local_sgd.h"

#include <exception>
#include <utility>

#include "dist/parallel/buckets.h"
#include "dist/parallel/data_parallel_impl.h"

namespace axle::dist {

LocalSgd::LocalSgd(DataParallel& replicas, std::shared_ptr<ProcessGroup> group,
                   const nn::Module& model, std::int64_t local_sgd_steps, bool enabled)
    : LocalSgd(&replicas, std::move(group), model, local_sgd_steps, enabled) {}

LocalSgd::LocalSgd(std::shared_ptr<ProcessGroup> group, const nn::Module& model,
                   std::int64_t local_sgd_steps, bool enabled)
    : LocalSgd(nullptr, std::move(group), model, local_sgd_steps, enabled) {}

LocalSgd::LocalSgd(DataParallel* replicas, std::shared_ptr<ProcessGroup> group,
                   const nn::Module& model, std::int64_t local_sgd_steps, bool enabled)
    : group_(std::move(group)),
      every_(local_sgd_steps),
      enabled_(enabled && group_->size() > 1),
      exceptions_(std::uncaught_exceptions()) {
    if (every_ < 1)
        throw ValueError(str("LocalSgd: local_sgd_steps must be positive: ", local_sgd_steps));
    for (const Tensor& p : model.parameters())
        if (p.requires_grad()) parameters_.push_back(p.detach());
    if (!enabled_ || replicas == nullptr) return;
    replicas_ = replicas;
    replicas_->impl_->reducer.is_local = true;
    replicas_->impl_->local_sgd = this;
    steps_ = std::exchange(replicas_->impl_->local_sgd_steps, 0);
}

LocalSgd::~LocalSgd() noexcept(false) {
    if (std::uncaught_exceptions() == exceptions_)
        finish();
    else
        resume_reduction();
}

void LocalSgd::step() {
    if (enabled_ && ++steps_ % every_ == 0) average();
}

void LocalSgd::finish() {
    if (!std::exchange(enabled_, false)) return;
    resume_reduction();
    average();
}

void LocalSgd::resume_reduction() {
    if (replicas_ == nullptr) return;
    replicas_->impl_->reducer.is_local = false;
    replicas_->impl_->local_sgd = nullptr;
}

void LocalSgd::average() { average_together(*group_, parameters_); }

}  // namespace axle::dist
