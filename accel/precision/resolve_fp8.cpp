#include "accel/precision/resolve_fp8.h"

#include <memory>
#include <utility>
#include <vector>

#include "accel/config/environment.h"
#include "accel/config/fp8_recipes.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

std::string variable(const char* field) { return str("ACCELERATE_FP8_", field); }

bool flag(const std::optional<bool>& given, const char* field, bool otherwise) {
    if (given) return *given;
    return flag_variable(variable(field).c_str()).value_or(otherwise);
}

int number(const std::optional<int>& given, const char* field, int otherwise, int least) {
    const int value = given ? *given : number_variable(variable(field).c_str()).value_or(otherwise);
    if (value < least)
        throw ValueError(
            str("Accelerator: fp8: ", lower(field), " must be at least ", least, ": ", value));
    return value;
}

std::string word(const std::string& given, const char* field, const char* otherwise) {
    return lower(given.empty() ? text_variable(variable(field).c_str()).value_or(otherwise)
                               : given);
}

bool is_delayed(const AcceleratorOptions& options) {
    if (options.ao_recipe_kwargs) return false;
    if (options.te_recipe_kwargs) return true;
    const std::string name = word({}, "BACKEND", "no");
    if (name == "ao" || name == "no") return false;
    if (name == "te") return true;
    throw ValueError(str("ACCELERATE_FP8_BACKEND: must be AO, TE or NO: '", printable(name), "'"));
}

void take_format(const std::string& given, nn::Float8Options& options) {
    const std::string format = word(given, "FORMAT", "HYBRID");
    if (format == "hybrid")
        options.forward = DType::f8_e4m3, options.gradient = DType::f8_e5m2;
    else if (format == "e4m3")
        options.forward = options.gradient = DType::f8_e4m3;
    else if (format == "e5m2")
        options.forward = options.gradient = DType::f8_e5m2;
    else
        throw ValueError(str("Accelerator: fp8: fp8_format must be HYBRID, E4M3 or E5M2: '",
                             printable(format), "'"));
}

void take_algorithm(const std::string& given, nn::Float8Options& options) {
    const std::string name = word(given, "AMAX_COMPUTE_ALGO", "most_recent");
    if (name != "most_recent" && name != "max")
        throw ValueError(str("Accelerator: fp8: amax_compute_algo must be most_recent or max: '",
                             printable(name), "'"));
    options.most_recent = name == "most_recent";
}

void refuse_blocks(const TERecipeKwargs& te) {
    if (!flag(te.use_mxfp8_block_scaling, "USE_MXFP8_BLOCK_SCALING", false)) return;
    if (te.amax_history_len || !te.amax_compute_algo.empty())
        throw ValueError(
            "Accelerator: fp8: use_mxfp8_block_scaling cannot be combined with amax_history_len or "
            "amax_compute_algo; leave out use_mxfp8_block_scaling, which is not implemented");
    throw NotImplementedError(
        "Accelerator: fp8: use_mxfp8_block_scaling is not implemented; leave it out");
}

nn::Float8Options delayed(const TERecipeKwargs& te) {
    refuse_blocks(te);
    nn::Float8Options options;
    options.scaling = nn::Float8Scaling::delayed;
    take_format(te.fp8_format, options);
    take_algorithm(te.amax_compute_algo, options);
    options.in_evaluation = flag(te.use_autocast_during_eval, "USE_AUTOCAST_DURING_EVAL", false);
    options.margin = number(te.margin, "MARGIN", 0, -64);
    options.interval = number(te.interval, "INTERVAL", 1, 1);
    options.history_length = number(te.amax_history_len, "AMAX_HISTORY_LEN", 1024, 1);
    const auto& override = te.override_linear_precision;
    const auto one = [&](std::size_t i, const char* field) {
        return flag(override ? std::optional((*override)[i]) : std::nullopt, field, false);
    };
    options.high_precision = {one(0, "OVERRIDE_FPROP"), one(1, "OVERRIDE_DGRAD"),
                              one(2, "OVERRIDE_WGRAD")};
    options.emulate = te.emulate;
    return options;
}

nn::Float8Options current(const AORecipeKwargs& ao) {
    nn::Float8Options options;
    options.scaling = nn::Float8Scaling::current;
    options.in_evaluation = true;
    options.pad_rows = flag(ao.pad_inner_dim, "PAD_INNER_DIM", true);
    flag(ao.enable_fsdp_float8_all_gather, "ENABLE_FSDP_FLOAT8_ALL_GATHER", true);
    options.power_of_two = ao.round_scales_to_power_of_2;
    options.emulate = ao.emulate;
    return options;
}

using NamedLinears = std::vector<std::pair<std::string, nn::Linear*>>;

NamedLinears linears_of(nn::Module& model) {
    NamedLinears linears;
    for (const auto& [name, module] : model.named_modules())
        if (auto* const linear = dynamic_cast<nn::Linear*>(module))
            linears.emplace_back(name, linear);
    return linears;
}

}  // namespace

Fp8Plan fp8_plan(const AcceleratorOptions& options) {
    Fp8Plan plan;
    if (is_delayed(options)) {
        plan.backend = Fp8Backend::TE;
        plan.options = delayed(options.te_recipe_kwargs.value_or(TERecipeKwargs()));
        return plan;
    }
    const AORecipeKwargs ao = options.ao_recipe_kwargs.value_or(AORecipeKwargs());
    plan.options = current(ao);
    plan.filter = ao.module_filter_func;
    plan.skips_ends = !ao.module_filter_func;
    return plan;
}

std::optional<Fp8Plan> start_fp8(const AcceleratorOptions& options, Device device,
                                 std::string& mixed_precision) {
    const bool has_recipe = options.ao_recipe_kwargs || options.te_recipe_kwargs;
    if (has_recipe && mixed_precision != "fp8")
        throw ValueError(
            str("Accelerator: fp8 recipes need mixed_precision 'fp8': '", mixed_precision, "'"));
    if (mixed_precision != "fp8") return std::nullopt;
    Fp8Plan plan = fp8_plan(options);
    if (plan.options.emulate || has_float8(device)) return plan;
    mixed_precision = device.is_cuda() ? "fp16" : "bf16";
    log(LogLevel::warning,
        "Accelerator: mixed_precision 'fp8' needs a GPU of compute "
        "capability 8.9 or more; on ",
        device, " it becomes '", mixed_precision, "', unless the recipe sets emulate");
    return std::nullopt;
}

void convert_to_fp8(nn::Module& model, const Fp8Plan& plan) {
    const NamedLinears linears = linears_of(model);
    std::size_t converted = 0;
    for (const auto& [name, linear] : linears) {
        const bool is_end = linear == linears.front().second || linear == linears.back().second;
        if ((plan.skips_ends && is_end) || (plan.filter && !plan.filter(*linear, name))) continue;
        if (nn::use_float8(*linear, plan.options)) ++converted;
    }
    if (converted == 0)
        log(LogLevel::warning, "prepare: none of the model's ", linears.size(),
            " Linear layers can use fp8: their sizes must be multiples of 16",
            plan.skips_ends ? ", and the first and the last layer are not converted" : "",
            plan.filter ? ", and module_filter_func must select them" : "");
}

}  // namespace axle::accel
