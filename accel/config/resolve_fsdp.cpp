#include "accel/config/resolve_fsdp.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "accel/config/environment.h"
#include "accel/config/resolve_options.h"
#include "accel/config/resolve_plugins.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

using Plugin = FullyShardedDataParallelPlugin;

std::string named(const char* option) { return str("FullyShardedDataParallelPlugin: ", option); }

[[noreturn]] void fail(const char* option, const std::string& reason) {
    throw ValueError(str(named(option), ": ", reason));
}

void warn(const char* option, const char* reason) {
    log(LogLevel::warning, named(option), ": ", reason);
}

std::string strategy_named(const std::string& option, const std::string& text) {
    return fsdp_name(option, text, fsdp_strategies());
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::size_t first = list.find_first_not_of(' ', begin);
        const std::size_t last = list.find_last_not_of(' ', end - 1);
        if (first < end) parts.push_back(list.substr(first, last - first + 1));
        begin = end + 1;
    }
    return parts;
}

// Resolves the options of one plugin.
class Resolver {
  public:
    explicit Resolver(Plugin& plugin) : p_(plugin) {}

    void resolve() {
        if (!p_.fsdp_version) p_.fsdp_version = number_variable("FSDP_VERSION").value_or(1);
        if (*p_.fsdp_version != 1 && *p_.fsdp_version != 2)
            fail("fsdp_version", str("must be 1 or 2: ", *p_.fsdp_version));
        is_v2_ = *p_.fsdp_version == 2;
        is_v2_ ? resolve_resharding() : resolve_strategy();
        resolve_prefetching();
        p_.set_state_dict_type();
        resolve_wrapping();
        read(p_.cpu_offload, "FSDP_OFFLOAD_PARAMS");
        resolve_checkpointing();
        if (std::holds_alternative<std::monostate>(p_.ignored_modules))
            if (auto pattern = text_variable("FSDP_IGNORED_MODULES")) p_.ignored_modules = *pattern;
        resolve_values();
        resolve_precision();
    }

  private:
    static void read(std::optional<bool>& field, const char* variable) {
        if (!field) field = flag_variable(variable).value_or(false);
    }
    // Returns a pointer to the text in a variant, or nullptr if it holds no text.
    template <class Variant>
    static const std::string* text_in(const Variant& value) {
        return std::get_if<std::string>(&value);
    }

    void resolve_strategy() {
        if (std::holds_alternative<bool>(p_.reshard_after_forward))
            fail("reshard_after_forward",
                 str("must be the name of a strategy for version 1 of FSDP, such as FULL_SHARD: ",
                     std::get<bool>(p_.reshard_after_forward) ? "true" : "false"));
        std::string old, name;
        if (!p_.sharding_strategy.empty()) {
            if (text_in(p_.reshard_after_forward) == nullptr)
                warn("sharding_strategy", "deprecated; use reshard_after_forward");
            old = strategy_named(named("sharding_strategy"), p_.sharding_strategy);
        }
        if (const auto* const text = text_in(p_.reshard_after_forward))
            name = strategy_named(named("reshard_after_forward"), *text);
        if (!old.empty() && !name.empty() && old != name)
            throw ValueError(str(named("sharding_strategy"),
                                 " and reshard_after_forward must name the same strategy: ", old,
                                 ", ", name, "; set only reshard_after_forward"));
        if (name.empty()) name = old.empty() ? strategy_of_environment() : old;
        p_.sharding_strategy = name;
        p_.reshard_after_forward = name;
    }

    // Accelerate's launchers always set both variables. By default, FSDP_SHARDING_STRATEGY is
    // FULL_SHARD and FSDP_RESHARD_AFTER_FORWARD is "true", a value for version 2.
    static std::string strategy_of_environment() {
        const auto strategy = text_variable("FSDP_SHARDING_STRATEGY");
        std::string old =
            strategy ? strategy_named("FSDP_SHARDING_STRATEGY", *strategy) : "FULL_SHARD";
        const auto reshard = text_variable("FSDP_RESHARD_AFTER_FORWARD");
        if (!reshard || parse_flag(*reshard)) return old;
        std::string name = strategy_named("FSDP_RESHARD_AFTER_FORWARD", *reshard);
        if (old != "FULL_SHARD" && old != name)
            throw ValueError(str(named("FSDP_SHARDING_STRATEGY"),
                                 " and FSDP_RESHARD_AFTER_FORWARD must name the same strategy: ",
                                 old, ", ", name, "; set only FSDP_RESHARD_AFTER_FORWARD"));
        return name;
    }

    void resolve_resharding() {
        auto& reshard = p_.reshard_after_forward;
        if (!p_.sharding_strategy.empty()) {
            if (std::holds_alternative<std::monostate>(reshard))
                fail("sharding_strategy",
                     str("is for version 1 of FSDP; set reshard_after_forward to true or false: ",
                         in_quotes(p_.sharding_strategy)));
            warn("sharding_strategy", "has no effect with version 2 of FSDP");
            p_.sharding_strategy.clear();
        }
        std::string option = named("reshard_after_forward");
        std::string text = "true";
        if (const bool* const given = std::get_if<bool>(&reshard)) {
            text = *given ? "true" : "false";
        } else if (const auto* const name = text_in(reshard)) {
            text = *name;
        } else if (auto variable = text_variable("FSDP_RESHARD_AFTER_FORWARD")) {
            text = *variable;
            option = "FSDP_RESHARD_AFTER_FORWARD";
        }
        const auto flag = parse_flag(text);
        if (!flag)
            throw ValueError(str(option, ": must be true or false for version 2 of FSDP: ",
                                 in_quotes(text), "; axle to-fsdp2 converts configurations"));
        reshard = *flag;
    }

    void resolve_prefetching() {
        std::string& backward = p_.backward_prefetch;
        if (backward.empty()) backward = text_variable("FSDP_BACKWARD_PREFETCH").value_or("");
        if (backward.empty()) backward = "NO_PREFETCH";
        backward = fsdp_name(named("backward_prefetch"), backward, fsdp_backward_prefetches());
        if (!is_v2_) {
            read(p_.forward_prefetch, "FSDP_FORWARD_PREFETCH");
            return;
        }
        if (backward != "NO_PREFETCH")
            warn("backward_prefetch",
                 "has no effect with version 2 of FSDP, which always prefetches");
        backward.clear();
        if (p_.forward_prefetch)
            fail("forward_prefetch",
                 "cannot be set with version 2 of FSDP, which always prefetches; leave it out, or "
                 "use fsdp_version 1");
    }

    void resolve_wrapping() {
        auto* const name = std::get_if<std::string>(&p_.auto_wrap_policy);
        if (name != nullptr) {
            if (name->empty()) *name = text_variable("FSDP_AUTO_WRAP_POLICY").value_or("NO_WRAP");
            *name = fsdp_name(named("auto_wrap_policy"), *name, fsdp_auto_wrap_policies(), false);
        } else if (!std::get<WrapPolicy>(p_.auto_wrap_policy)) {
            fail("auto_wrap_policy", "the function is empty; leave the option out");
        }
        const std::string policy = name == nullptr ? "" : *name;
        if (policy == "TRANSFORMER_BASED_WRAP") {
            if (!p_.transformer_cls_names_to_wrap)
                if (const auto types = text_variable("FSDP_TRANSFORMER_CLS_TO_WRAP"))
                    p_.transformer_cls_names_to_wrap = split(*types);
        } else if (p_.transformer_cls_names_to_wrap) {
            warn("transformer_cls_names_to_wrap",
                 "has no effect unless auto_wrap_policy is TRANSFORMER_BASED_WRAP");
        }
        if (policy == "SIZE_BASED_WRAP") {
            if (!p_.min_num_params) p_.min_num_params = read_min_num_params();
            if (*p_.min_num_params < 0)
                fail("min_num_params", str("must be at least 0: ", *p_.min_num_params));
        } else if (p_.min_num_params) {
            warn("min_num_params", "has no effect unless auto_wrap_policy is SIZE_BASED_WRAP");
        }
    }
    static std::int64_t read_min_num_params() {
        const auto text = text_variable("FSDP_MIN_NUM_PARAMS");
        if (!text) return 0;
        std::int64_t number = 0;
        const char* const end = text->data() + text->size();
        const auto [stop, error] = std::from_chars(text->data(), end, number);
        if (error != std::errc() || stop != end)
            throw ValueError(
                str("FSDP_MIN_NUM_PARAMS: must be a 64-bit integer: ", in_quotes(*text)));
        return number;
    }
    void resolve_checkpointing() {
        read(p_.activation_checkpointing, "FSDP_ACTIVATION_CHECKPOINTING");
        read(p_.activation_checkpointing_offload, "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD");
        if (!*p_.activation_checkpointing_offload) return;
        if (!*p_.activation_checkpointing)
            fail("activation_checkpointing_offload",
                 "needs activation_checkpointing; set it to true");
        if (!is_v2_)
            fail("activation_checkpointing_offload",
                 "needs version 2 of FSDP; set fsdp_version to 2");
    }

    void resolve_values() {
        read(p_.cpu_ram_efficient_loading, "FSDP_CPU_RAM_EFFICIENT_LOADING");
        if (is_v2_) {
            if (p_.use_orig_params)
                warn("use_orig_params",
                     "has no effect with version 2 of FSDP: parameters always keep their names and "
                     "shapes");
            if (p_.sync_module_states)
                warn("sync_module_states",
                     "has no effect with version 2 of FSDP, which starts with the values of rank "
                     "0");
            p_.use_orig_params.reset();
            p_.sync_module_states.reset();
            return;
        }
        read(p_.use_orig_params, "FSDP_USE_ORIG_PARAMS");
        read(p_.sync_module_states, "FSDP_SYNC_MODULE_STATES");
        if (*p_.cpu_ram_efficient_loading && !*p_.sync_module_states) {
            warn("sync_module_states", "set to true because cpu_ram_efficient_loading is true");
            p_.sync_module_states = true;
        }
    }

    // Converts a policy that is a name or a map, and checks every policy.
    void resolve_precision() {
        if (!std::holds_alternative<std::monostate>(p_.mixed_precision_policy))
            p_.set_mixed_precision(f32);
    }

    Plugin& p_;
    bool is_v2_ = false;
};

bool uses_torchao(const AcceleratorOptions& options) {
    return precision(options) == "fp8" &&
           (options.ao_recipe_kwargs ||
            (!options.te_recipe_kwargs &&
             lower(text_variable("ACCELERATE_FP8_BACKEND").value_or("")) == "ao"));
}

}  // namespace

void resolve_fsdp(AcceleratorOptions& options) {
    if (!options.fsdp_plugin && flag_variable("ACCELERATE_USE_FSDP").value_or(false))
        options.fsdp_plugin.emplace();
    if (!options.fsdp_plugin) return;
    Plugin& plugin = *options.fsdp_plugin;
    Resolver(plugin).resolve();
    if (const std::string name = precision(options); name != "no") plugin.set_mixed_precision(name);
    if (*plugin.cpu_ram_efficient_loading && uses_torchao(options))
        fail("cpu_ram_efficient_loading",
             "cannot be combined with mixed_precision fp8 and the AO recipe; set it to false");
}

}  // namespace axle::accel
