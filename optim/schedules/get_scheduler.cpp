#include "optim/schedules/get_scheduler.h"

#include <algorithm>
#include <span>

#include "optim/schedules/metric_schedules.h"
#include "optim/schedules/schedule_checks.h"

namespace axle::optim {
namespace {

using SchedulerPtr = std::unique_ptr<Scheduler>;

// The named options of a schedule, as a map, or null if there are no options.
class Kwargs {
  public:
    Kwargs(std::string_view schedule, const Tree& tree) : schedule_(schedule), tree_(tree) {}

    void allow_only(std::span<const char* const> names) const {
        if (tree_.is_null()) return;
        for (const auto& [key, value] : tree_.entries())
            if (std::find(names.begin(), names.end(), key) == names.end())
                throw ValueError(
                    str("get_scheduler: ", schedule_, ": unknown option '", key, "'",
                        names.empty() ? "; the schedule has no options" : "; expected one of ",
                        join_names(names)));
    }

    // Each overload reads an option into `value`, which is unchanged if the option is missing.
    void read(const char* key, double& value) const {
        if (const Tree* const option = find(key)) value = option->number();
    }
    void read(const char* key, std::int64_t& value) const {
        if (const Tree* const option = find(key)) value = option->integer();
    }
    void read(const char* key, bool& value) const {
        if (const Tree* const option = find(key)) value = option->boolean();
    }
    void read(const char* key, PerGroup& value) const {
        const Tree* const option = find(key);
        if (option == nullptr) return;
        if (!option->is_list()) return void(value = option->number());
        std::vector<double> all;
        for (const Tree& one : option->elements()) all.push_back(one.number());
        value = std::move(all);
    }
    template <class T>
    void read(const char* key, std::optional<T>& value) const {
        if (find(key) != nullptr) read(key, value.emplace());
    }
    // Reads an enum value by its name. `names` are in the order of the enum. Throws ValueError for
    // another name.
    template <class E>
    void read(const char* key, E& value, std::span<const char* const> names) const {
        const Tree* const option = find(key);
        if (option == nullptr) return;
        const auto found = std::find(names.begin(), names.end(), option->string());
        if (found == names.end())
            throw ValueError(str("get_scheduler: ", schedule_, ": ", key, " must be one of ",
                                 join_names(names), ": '", option->string(), "'"));
        value = static_cast<E>(found - names.begin());
    }

    static std::string join_names(std::span<const char* const> names) {
        std::string all;
        for (const char* const name : names) all += str(all.empty() ? "" : ", ", name);
        return all;
    }

  private:
    const Tree* find(const char* key) const {
        const Tree* const option = tree_.is_null() ? nullptr : tree_.find(key);
        return option == nullptr || option->is_null() ? nullptr : option;
    }

    std::string_view schedule_;
    const Tree& tree_;
};

struct Request {
    Optimizer& optimizer;
    std::int64_t warmup;                   // 0 if not given
    std::optional<std::int64_t> training;  // always set for Needs::training
    const Kwargs& kwargs;
};

constexpr const char* kMetricModes[] = {"min", "max"};
constexpr const char* kWsdShapes[] = {"linear", "cosine", "1-sqrt"};

// Returns a pointer to the schedule that make() returns.
template <class F>
SchedulerPtr make_lambda(F make) {
    return SchedulerPtr(new LambdaLR(make()));
}

SchedulerPtr make_linear(const Request& r) {
    return make_lambda(
        [&] { return get_linear_schedule_with_warmup(r.optimizer, r.warmup, *r.training); });
}

SchedulerPtr make_cosine(const Request& r) {
    double cycles = 0.5;
    r.kwargs.read("num_cycles", cycles);
    return make_lambda([&] {
        return get_cosine_schedule_with_warmup(r.optimizer, r.warmup, *r.training, cycles);
    });
}

SchedulerPtr make_cosine_with_restarts(const Request& r) {
    double cycles = 1;
    r.kwargs.read("num_cycles", cycles);
    return make_lambda([&] {
        return get_cosine_with_hard_restarts_schedule_with_warmup(r.optimizer, r.warmup,
                                                                  *r.training, cycles);
    });
}

SchedulerPtr make_polynomial(const Request& r) {
    double lr_end = 1e-7, power = 1;
    r.kwargs.read("lr_end", lr_end);
    r.kwargs.read("power", power);
    return make_lambda([&] {
        return get_polynomial_decay_schedule_with_warmup(r.optimizer, r.warmup, *r.training, lr_end,
                                                         power);
    });
}

SchedulerPtr make_constant(const Request& r) {
    return make_lambda([&] { return get_constant_schedule(r.optimizer); });
}

SchedulerPtr make_constant_with_warmup(const Request& r) {
    return make_lambda([&] { return get_constant_schedule_with_warmup(r.optimizer, r.warmup); });
}

SchedulerPtr make_inverse_sqrt(const Request& r) {
    std::optional<std::int64_t> timescale;
    r.kwargs.read("timescale", timescale);
    return make_lambda([&] { return get_inverse_sqrt_schedule(r.optimizer, r.warmup, timescale); });
}

MinLr min_lr_of(const Request& r) {
    MinLr end;
    r.kwargs.read("min_lr", end.min_lr);
    r.kwargs.read("min_lr_rate", end.min_lr_rate);
    return end;
}

SchedulerPtr make_min_lr(const Request& r) {
    double cycles = 0.5;
    r.kwargs.read("num_cycles", cycles);
    return make_lambda([&] {
        return get_cosine_with_min_lr_schedule_with_warmup(r.optimizer, r.warmup, *r.training,
                                                           min_lr_of(r), cycles);
    });
}

SchedulerPtr make_cosine_warmup_with_min_lr(const Request& r) {
    double cycles = 0.5;
    std::optional<double> warmup_lr_rate;
    r.kwargs.read("num_cycles", cycles);
    r.kwargs.read("warmup_lr_rate", warmup_lr_rate);
    return make_lambda([&] {
        return get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
            r.optimizer, r.warmup, *r.training, min_lr_of(r), cycles, warmup_lr_rate);
    });
}

SchedulerPtr make_wsd(const Request& r) {
    WsdOptions options{.training_steps = r.training};
    std::optional<std::int64_t> decay;
    r.kwargs.read("num_decay_steps", decay);
    if (!decay)
        throw ValueError(
            "get_scheduler: warmup_stable_decay requires num_decay_steps in "
            "scheduler_specific_kwargs");
    r.kwargs.read("num_stable_steps", options.stable_steps);
    r.kwargs.read("warmup_type", options.warmup_type, kWsdShapes);
    r.kwargs.read("decay_type", options.decay_type, kWsdShapes);
    r.kwargs.read("min_lr_ratio", options.min_lr_ratio);
    r.kwargs.read("num_cycles", options.cycles);
    return make_lambda([&] { return get_wsd_schedule(r.optimizer, r.warmup, *decay, options); });
}

template <class Options>
void read_common(const Kwargs& kwargs, Options& o) {
    kwargs.read("mode", o.mode, kMetricModes);
    kwargs.read("factor", o.factor);
    kwargs.read("patience", o.patience);
    kwargs.read("threshold", o.threshold);
    kwargs.read("threshold_mode", o.threshold_mode, kThresholdModes);
    kwargs.read("cooldown", o.cooldown);
    kwargs.read("min_lr", o.min_lr);
    kwargs.read("eps", o.eps);
}

SchedulerPtr make_plateau(const Request& r) {
    PlateauOptions options;
    read_common(r.kwargs, options);
    return std::make_unique<ReduceLROnPlateau>(r.optimizer, options);
}

SchedulerPtr make_greedy(const Request& r) {
    GreedyOptions options;
    read_common(r.kwargs, options);
    r.kwargs.read("warmup", options.warmup);
    r.kwargs.read("max_lr", options.max_lr);
    r.kwargs.read("smooth", options.smooth);
    r.kwargs.read("window_size", options.window_size);
    r.kwargs.read("reset_start", options.reset_start);
    return std::make_unique<GreedyLR>(r.optimizer, options);
}

enum class Needs : std::uint8_t { nothing, warmup, training };  // training also needs warmup

struct Entry {
    const char* name;
    Needs needs;
    SchedulerPtr (*make)(const Request&);
    std::vector<const char*> options = {};
};

const std::vector<Entry>& entries() {
    static const std::vector<Entry> all = {
        {"linear", Needs::training, make_linear},
        {"cosine", Needs::training, make_cosine, {"num_cycles"}},
        {"cosine_with_restarts", Needs::training, make_cosine_with_restarts, {"num_cycles"}},
        {"polynomial", Needs::training, make_polynomial, {"lr_end", "power"}},
        {"constant", Needs::nothing, make_constant},
        {"constant_with_warmup", Needs::warmup, make_constant_with_warmup},
        {"inverse_sqrt", Needs::warmup, make_inverse_sqrt, {"timescale"}},
        {"reduce_lr_on_plateau",
         Needs::nothing,
         make_plateau,
         {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr",
          "eps"}},
        {"cosine_with_min_lr",
         Needs::training,
         make_min_lr,
         {"num_cycles", "min_lr", "min_lr_rate"}},
        {"cosine_warmup_with_min_lr",
         Needs::training,
         make_cosine_warmup_with_min_lr,
         {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
        {"warmup_stable_decay",
         Needs::warmup,
         make_wsd,
         {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio",
          "num_cycles"}},
        {"greedy",
         Needs::nothing,
         make_greedy,
         {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "warmup",
          "min_lr", "max_lr", "eps", "smooth", "window_size", "reset_start"}},
    };
    return all;
}

}  // namespace

std::vector<std::string> scheduler_names() {
    std::vector<std::string> names;
    for (const Entry& entry : entries()) names.emplace_back(entry.name);
    return names;
}

std::unique_ptr<Scheduler> get_scheduler(std::string_view name, Optimizer& optimizer,
                                         std::optional<std::int64_t> num_warmup_steps,
                                         std::optional<std::int64_t> num_training_steps,
                                         const Tree& scheduler_specific_kwargs) {
    const auto found = std::find_if(entries().begin(), entries().end(),
                                    [&](const Entry& entry) { return entry.name == name; });
    if (found == entries().end()) {
        std::vector<const char*> names;
        for (const Entry& entry : entries()) names.push_back(entry.name);
        throw ValueError(str("get_scheduler: unknown schedule '", name, "'; expected one of ",
                             Kwargs::join_names(names)));
    }
    if (found->needs != Needs::nothing && !num_warmup_steps)
        throw ValueError(str("get_scheduler: ", name, " requires num_warmup_steps: it is nullopt"));
    if (found->needs == Needs::training && !num_training_steps)
        throw ValueError(
            str("get_scheduler: ", name, " requires num_training_steps: it is nullopt"));
    const Kwargs kwargs(name, scheduler_specific_kwargs);
    kwargs.allow_only(found->options);
    return found->make({optimizer, num_warmup_steps.value_or(0), num_training_steps, kwargs});
}

}  // namespace axle::optim
