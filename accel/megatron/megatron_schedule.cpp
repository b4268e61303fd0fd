#include "accel/megatron/megatron_schedule.h"

#include <string>
#include <vector>

#include "accel/config/plugins.h"
#include "accel/loop/loop_state.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "optim/schedules/param_scheduler.h"

namespace axle::accel {
namespace {

constexpr const char* kPlugin = "MegatronLMPlugin";

class MegatronSchedule : public optim::OptimizerParamScheduler, public OneStepPerUpdate {
  public:
    using OptimizerParamScheduler::OptimizerParamScheduler;
};

const Tree* find_argument(const MegatronLMPlugin& plugin, const char* name) {
    return plugin.other_megatron_args.is_map() ? plugin.other_megatron_args.find(name) : nullptr;
}

void refuse_both(bool both, const char* a, const char* b) {
    if (both) throw ValueError(str(kPlugin, ": ", a, " and ", b, " are both given; use one"));
}

void check_arguments(const Tree& arguments) {
    if (arguments.is_null()) return;
    if (!arguments.is_map())
        throw ValueError(str(kPlugin, ": other_megatron_args must be a map: ", arguments));
    for (const auto& [name, value] : arguments.entries())
        if (name != "lr_warmup_init" && name != "lr_wsd_decay_style" &&
            name != "lr_wsd_decay_iters" && name != "lr_wsd_decay_samples")
            throw NotImplementedError(
                str(kPlugin, ": other_megatron_args: ", in_quotes(name),
                    " is not an argument that Axle reads; the arguments are lr_warmup_init, "
                    "lr_wsd_decay_style, lr_wsd_decay_iters and lr_wsd_decay_samples, and other "
                    "options are members of MegatronLMPlugin or of the model's configuration"));
}

}  // namespace

void check_schedule_options(const MegatronLMPlugin& plugin) {
    static_cast<void>(optim::lr_decay_of(plugin.lr_decay_style));
    static_cast<void>(optim::weight_decay_increase_of(plugin.weight_decay_incr_style));
    check_arguments(plugin.other_megatron_args);
    if (const Tree* const style = find_argument(plugin, "lr_wsd_decay_style"))
        static_cast<void>(optim::wsd_decay_of(style->string()));
    refuse_both(plugin.train_iters && plugin.train_samples, "train_iters", "train_samples");
    refuse_both(plugin.train_iters && plugin.lr_decay_samples, "train_iters", "lr_decay_samples");
    refuse_both(plugin.train_iters && plugin.lr_warmup_samples.value_or(0) > 0, "train_iters",
                "lr_warmup_samples");
    refuse_both(plugin.train_samples && plugin.lr_decay_iters, "train_samples", "lr_decay_iters");
    refuse_both(plugin.train_samples && plugin.lr_warmup_iters.value_or(0) > 0, "train_samples",
                "lr_warmup_iters");
    refuse_both(plugin.lr_warmup_fraction && plugin.lr_warmup_iters.value_or(0) > 0,
                "lr_warmup_fraction", "lr_warmup_iters");
    refuse_both(plugin.lr_warmup_fraction && plugin.lr_warmup_samples.value_or(0) > 0,
                "lr_warmup_fraction", "lr_warmup_samples");
    if (plugin.lr_warmup_fraction &&
        !(*plugin.lr_warmup_fraction >= 0 && *plugin.lr_warmup_fraction < 1))
        throw ValueError(str(kPlugin, ": lr_warmup_fraction must be at least 0 and less than 1: ",
                             *plugin.lr_warmup_fraction));
}

std::unique_ptr<optim::Scheduler> make_megatron_schedule(const MegatronLMPlugin& plugin,
                                                         optim::Optimizer& optimizer,
                                                         const MegatronRunSizes& sizes) {
    std::optional<std::int64_t> updates = plugin.train_iters;
    if (!updates && sizes.total_num_steps) {
        updates = *sizes.total_num_steps / sizes.replicas;
        if (plugin.train_samples)
            log(LogLevel::warning, kPlugin,
                ": train_samples has no effect, because the placeholder of the schedule has "
                "total_num_steps");
    }
    const bool counts_samples = !updates && plugin.train_samples;
    if (!updates && !counts_samples)
        throw ValueError(str(kPlugin,
                             ": the schedule needs train_iters, train_samples or total_num_steps "
                             "of its placeholder"));
    if (counts_samples && !sizes.samples_per_update)
        throw ValueError(str(kPlugin,
                             ": train_samples needs a loader with a batch size in the same call "
                             "of prepare()"));
    // The number of samples of an update. If it is unknown, 1 is used, because the schedule then
    // counts updates.
    const auto batch = static_cast<double>(sizes.samples_per_update.value_or(1));
    const auto steps = [&](std::optional<std::int64_t> own_updates,
                           std::optional<std::int64_t> samples, double otherwise) {
        if (counts_samples) return samples ? static_cast<double>(*samples) : otherwise;
        return own_updates ? static_cast<double>(*own_updates) * batch : otherwise;
    };
    const double length = steps(updates, plugin.train_samples, 0);
    optim::ParamScheduleOptions options{
        .min_lr = plugin.min_lr,
        .lr_decay_steps = steps(plugin.lr_decay_iters, plugin.lr_decay_samples, length),
        .lr_decay = optim::lr_decay_of(plugin.lr_decay_style),
        .start_weight_decay = plugin.start_weight_decay,
        .end_weight_decay = plugin.end_weight_decay,
        .weight_decay_steps = length,
        .weight_decay_increase = optim::weight_decay_increase_of(plugin.weight_decay_incr_style),
        .increment = batch};
    options.lr_warmup_steps =
        plugin.lr_warmup_fraction
            ? *plugin.lr_warmup_fraction * options.lr_decay_steps
            : steps(plugin.lr_warmup_iters, plugin.lr_warmup_samples,
                    static_cast<double>(sizes.warmup_num_steps / sizes.replicas) * batch);
    if (options.weight_decay_increase != optim::WeightDecayIncrease::constant &&
        !(plugin.start_weight_decay && plugin.end_weight_decay))
        throw ValueError(str(kPlugin, ": weight_decay_incr_style ",
                             in_quotes(plugin.weight_decay_incr_style),
                             " needs start_weight_decay and end_weight_decay"));
    if (const Tree* const rate = find_argument(plugin, "lr_warmup_init"))
        options.init_lr = rate->number();
    if (const Tree* const style = find_argument(plugin, "lr_wsd_decay_style"))
        options.wsd_decay = optim::wsd_decay_of(style->string());
    const Tree* const wsd =
        find_argument(plugin, counts_samples ? "lr_wsd_decay_samples" : "lr_wsd_decay_iters");
    if (wsd != nullptr) options.wsd_decay_steps = wsd->number() * (counts_samples ? 1 : batch);
    return std::make_unique<MegatronSchedule>(optimizer, options);
}

}  // namespace axle::accel
