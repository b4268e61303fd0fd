#include "accel/config/resolve_options.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "accel/config/environment.h"
#include "accel/config/resolve_plugins.h"
#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::accel {

struct KwargsHandler::Value {
    std::variant<DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs,
                 AutocastKwargs, ProfileKwargs, AORecipeKwargs, TERecipeKwargs>
        options;
};

KwargsHandler::KwargsHandler(DistributedDataParallelKwargs handler)
    : value_(new Value{std::move(handler)}) {}
KwargsHandler::KwargsHandler(GradScalerKwargs handler) : value_(new Value{handler}) {}
KwargsHandler::KwargsHandler(InitProcessGroupKwargs handler)
    : value_(new Value{std::move(handler)}) {}
KwargsHandler::KwargsHandler(AutocastKwargs handler) : value_(new Value{handler}) {}
KwargsHandler::KwargsHandler(ProfileKwargs handler) : value_(new Value{std::move(handler)}) {}
KwargsHandler::KwargsHandler(AORecipeKwargs handler) : value_(new Value{std::move(handler)}) {}
KwargsHandler::KwargsHandler(TERecipeKwargs handler) : value_(new Value{std::move(handler)}) {}

namespace {

// Copies each handler into the option of its type. Throws UsageError if the option is already set.
class Handlers {
  public:
    explicit Handlers(AcceleratorOptions& options) : options_(options) {}

    void operator()(const DistributedDataParallelKwargs& given) {
        take(options_.ddp_kwargs, given, "DistributedDataParallelKwargs", "ddp_kwargs");
    }
    void operator()(const GradScalerKwargs& given) {
        take(options_.grad_scaler_kwargs, given, "GradScalerKwargs", "grad_scaler_kwargs");
    }
    void operator()(const InitProcessGroupKwargs& given) {
        take(options_.init_process_group_kwargs, given, "InitProcessGroupKwargs",
             "init_process_group_kwargs");
    }
    void operator()(const AutocastKwargs& given) {
        take(options_.autocast_kwargs, given, "AutocastKwargs", "autocast_kwargs");
    }
    void operator()(const ProfileKwargs& given) {
        take(options_.profile_kwargs, given, "ProfileKwargs", "profile_kwargs");
    }
    void operator()(const AORecipeKwargs& given) {
        take(options_.ao_recipe_kwargs, given, "AORecipeKwargs", "ao_recipe_kwargs");
    }
    void operator()(const TERecipeKwargs& given) {
        take(options_.te_recipe_kwargs, given, "TERecipeKwargs", "te_recipe_kwargs");
    }

  private:
    template <class T>
    static bool is_set(const std::optional<T>& field) {
        return field.has_value();
    }
    template <class T>
    static bool is_set(const T& field) {
        return !(field == T());
    }
    template <class Field, class T>
    void take(Field& field, const T& given, const char* kind, const char* name) {
        if (is_set(field))
            throw UsageError(str("Accelerator: ", name,
                                 " is given, and kwargs_handlers also contains ", kind,
                                 "; give only one of them"));
        field = given;
    }

    AcceleratorOptions& options_;
};

void take_handlers(AcceleratorOptions& options) {
    static constexpr const char* kKinds[] = {"DistributedDataParallelKwargs",
                                             "GradScalerKwargs",
                                             "InitProcessGroupKwargs",
                                             "AutocastKwargs",
                                             "ProfileKwargs",
                                             "AORecipeKwargs",
                                             "TERecipeKwargs"};
    static_assert(std::size(kKinds) ==
                  std::variant_size_v<decltype(KwargsHandler::Value::options)>);
    const auto kind_of = [](const KwargsHandler& handler) {
        return handler.value().options.index();
    };
    auto& handlers = options.kwargs_handlers;
    for (std::size_t i = 0; i < handlers.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (kind_of(handlers[i]) == kind_of(handlers[j]))
                throw ValueError(
                    str("Accelerator: kwargs_handlers: only one handler of each kind is allowed; "
                        "given twice: ",
                        kKinds[kind_of(handlers[i])]));
    for (const KwargsHandler& handler : handlers)
        std::visit(Handlers(options), handler.value().options);
    handlers.clear();
}

void take_fp16(AcceleratorOptions& options) {
    if (!options.fp16) return;
    const bool is_given = !options.mixed_precision.empty();
    if (is_given && *options.fp16 != (lower(options.mixed_precision) == "fp16"))
        throw UsageError(str("Accelerator: fp16 and mixed_precision must agree: fp16 is ",
                             *options.fp16 ? "true" : "false", ", mixed_precision is '",
                             printable(options.mixed_precision), "'; give only mixed_precision"));
    if (*options.fp16) options.mixed_precision = "fp16";
}

// Copies an option of the Accelerator into the field of dataloader_config with the same name.
// Throws UsageError if both are given and differ.
template <class T>
void move_in(const char* name, const std::optional<bool>& old, T& field, bool both) {
    if (!old) return;
    if (both && field != T(*old))
        throw UsageError(str("Accelerator: ", name, " and dataloader_config.", name, " differ: ",
                             *old ? "true" : "false", " and ", field == T(true) ? "true" : "false",
                             "; give it in dataloader_config alone"));
    field = *old;
}

DataLoaderConfiguration dataloader_config(const AcceleratorOptions& options) {
    const bool both = options.dataloader_config.has_value();
    DataLoaderConfiguration config = options.dataloader_config.value_or(DataLoaderConfiguration());
    move_in("split_batches", options.split_batches ? std::optional(true) : std::nullopt,
            config.split_batches, both);
    move_in("even_batches", options.even_batches, config.even_batches, both);
    move_in("dispatch_batches", options.dispatch_batches, config.dispatch_batches,
            both && config.dispatch_batches);
    move_in("use_seedable_sampler", options.use_seedable_sampler, config.use_seedable_sampler,
            both);
    return config;
}

// Returns the value and the name of the first environment variable that is set, or "no" and an
// empty name.
std::pair<std::string, const char*> precision_of_environment() {
    for (const char* name : {"ACCELERATE_MIXED_PRECISION", "MIXED_PRECISION"})
        if (auto text = text_variable(name)) return {*text, name};
    return {"no", ""};
}

}  // namespace

AcceleratorOptions resolved(AcceleratorOptions options) {
    take_handlers(options);
    take_fp16(options);
    read_plugins(options);
    return options;
}

int positive_steps(const char* option, int steps) {
    if (steps < 1) throw ValueError(str(option, " must be positive: ", steps));
    return steps;
}

int accumulation_steps(const AcceleratorOptions& options, const char* option) {
    const auto& plugin = options.gradient_accumulation_plugin;
    if (plugin) {
        if (options.gradient_accumulation_steps != 1)
            throw UsageError(
                "Accelerator: gradient_accumulation_steps and "
                "gradient_accumulation_plugin are both given; use one");
        const bool ends = plugin->short_window == ShortWindow::actual ||
                          plugin->short_window == ShortWindow::drop;
        if (ends && !plugin->sync_with_dataloader)
            throw UsageError(
                str("Accelerator: short_window '",
                    plugin->short_window == ShortWindow::drop ? "drop" : "actual",
                    "' applies at the end of a pass and needs sync_with_dataloader = true; leave "
                    "one of the options out"));
        return positive_steps("Accelerator: gradient_accumulation_plugin.num_steps",
                              plugin->num_steps.value_or(1));
    }
    const auto steps = number_variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
    if (!steps) return positive_steps(option, options.gradient_accumulation_steps);
    return positive_steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS:", *steps);
}

std::string precision(const AcceleratorOptions& options) {
    const bool is_set = !options.mixed_precision.empty();
    const auto [given, variable] =
        is_set ? std::pair(options.mixed_precision, "") : precision_of_environment();
    const std::string name = lower(given);
    if (name == "no" || name == "fp16" || name == "bf16" || name == "fp8") return name;
    throw ValueError(str("Accelerator: mixed_precision must be no, fp16, bf16 or fp8: '",
                         printable(given), "'", *variable == '\0' ? "" : " in ", variable));
}

PrepareDataLoaderOptions loading(const AcceleratorOptions& options, Device device) {
    PrepareDataLoaderOptions loading{.device = device, .put_on_device = options.device_placement};
    loading.config = dataloader_config(options);
    loading.rng_types.clear();
    for (const std::string& name : options.rng_types) loading.rng_types.push_back(rng_type(name));
    return loading;
}

}  // namespace axle::accel
