#include "optim/sgd.h"

#include <utility>

#include "core/launch.h"

namespace axle::optim {
namespace {

constexpr const char* kSgdBuffers[] = {"momentum_buffer"};

}  // namespace

std::vector<NamedOption> SGDOptions::named() {
    return {{"lr", &lr},
            {"momentum", &momentum},
            {"dampening", &dampening},
            {"weight_decay", &weight_decay},
            {"nesterov", &nesterov},
            {"maximize", &maximize}};
}

void SGDOptions::check(const char* op) const {
    if (!(lr >= 0)) throw ValueError(str(op, ": lr must be 0 or more: ", lr));
    if (!(momentum >= 0)) throw ValueError(str(op, ": momentum must be 0 or more: ", momentum));
    if (!(weight_decay >= 0))
        throw ValueError(str(op, ": weight_decay must be 0 or more: ", weight_decay));
    if (nesterov && (momentum <= 0 || dampening != 0))
        throw ValueError(str(op, ": nesterov needs momentum above 0 and dampening 0: momentum ",
                             momentum, ", dampening ", dampening));
}

SGD::SGD(std::vector<Tensor> params, SGDOptions options) { add_params(std::move(params), options); }

SGD::SGD(std::vector<Group> groups) { add_groups(std::move(groups)); }

std::span<const char* const> SGD::buffer_names() const { return kSgdBuffers; }

std::size_t SGD::buffers_needed(std::size_t group) const {
    return groups_[group].momentum != 0 ? 1 : 0;
}

void SGD::fill_groups(Device device) {
    table_.clear();
    for (const Group& g : groups_)
        table_.push_back({g.lr, g.momentum, g.dampening, g.weight_decay, g.nesterov, g.maximize});
    table_.upload_to(device, upload_plan());
}

void SGD::update(Device device, std::span<const kernels::Slot> slots,
                 const kernels::StepScalars* scalars) {
    launch(device, [&](auto& on) { kernels::sgd(on, slots, table_.data(), scalars); });
}

}  // namespace axle::optim
