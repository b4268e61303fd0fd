#include "optim/adam.h"

#include <utility>

#include "core/launch.h"

namespace axle::optim {
namespace {

constexpr const char* kAdamBuffers[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

template <class Options>
std::vector<NamedOption> named_options(Options& o) {
    return {{"lr", &o.lr},           {"betas", &o.betas},
            {"eps", &o.eps},         {"weight_decay", &o.weight_decay},
            {"amsgrad", &o.amsgrad}, {"maximize", &o.maximize}};
}

template <class Options>
void check_options(const char* op, const Options& o) {
    if (!(o.lr >= 0)) throw ValueError(str(op, ": lr must be 0 or more: ", o.lr));
    if (!(o.eps >= 0)) throw ValueError(str(op, ": eps must be 0 or more: ", o.eps));
    if (!(o.weight_decay >= 0))
        throw ValueError(str(op, ": weight_decay must be 0 or more: ", o.weight_decay));
    for (const double beta : o.betas)
        if (!(beta >= 0 && beta < 1))
            throw ValueError(
                str(op, ": betas must be in [0, 1): [", o.betas[0], ", ", o.betas[1], "]"));
}

}  // namespace

std::vector<NamedOption> AdamOptions::named() { return named_options(*this); }
std::vector<NamedOption> AdamWOptions::named() { return named_options(*this); }
void AdamOptions::check(const char* op) const { check_options(op, *this); }
void AdamWOptions::check(const char* op) const { check_options(op, *this); }

template <class Options>
AdamFamily<Options>::AdamFamily(std::vector<Tensor> params, Options options) {
    this->add_params(std::move(params), options);
}

template <class Options>
AdamFamily<Options>::AdamFamily(std::vector<Group> groups) {
    this->add_groups(std::move(groups));
}

template <class Options>
std::span<const char* const> AdamFamily<Options>::buffer_names() const {
    return kAdamBuffers;
}

template <class Options>
std::size_t AdamFamily<Options>::buffers_needed(std::size_t group) const {
    return this->groups_[group].amsgrad ? 3 : 2;
}

template <class Options>
void AdamFamily<Options>::fill_groups(Device device) {
    table_.clear();
    for (const Group& g : this->groups_)
        table_.push_back({g.lr, g.betas[0], g.betas[1], g.eps, g.weight_decay,
                          Options::kDecoupledDecay, g.maximize});
    table_.upload_to(device, this->upload_plan());
}

template <class Options>
void AdamFamily<Options>::update(Device device, std::span<const kernels::Slot> slots,
                                 const kernels::StepScalars* scalars) {
    launch(device, [&](auto& on) { kernels::adam(on, slots, table_.data(), scalars); });
}

template class AdamFamily<AdamOptions>;
template class AdamFamily<AdamWOptions>;

}  // namespace axle::optim
