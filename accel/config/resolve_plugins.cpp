#include "accel/config/resolve_plugins.h"

#include <initializer_list>
#include <string_view>

#include "accel/config/environment.h"
#include "accel/config/resolve_deepspeed.h"
#include "accel/config/resolve_fsdp.h"
#include "accel/prepare/resolve_megatron.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

template <class Names>
void check_choice(const char* option, const std::string& value, const Names& names) {
    std::string set;
    for (const auto& name : names) {
        if (value == name) return;
        set += (set.empty() ? "" : ", ") + std::string(name);
    }
    throw ValueError(
        str("Accelerator: ", option, ": must be one of ", set, ": '", printable(value), "'"));
}
void check_choice(const char* option, const std::string& value,
                  std::initializer_list<const char*> names) {
    check_choice<std::initializer_list<const char*>>(option, value, names);
}

void refuse_both(bool both, const char* a, const char* b) {
    if (both) throw UsageError(str("Accelerator: ", a, " and ", b, " are both given; use one"));
}

void read_dynamo(AcceleratorOptions& options) {
    refuse_both(options.dynamo_plugin && !options.dynamo_backend.empty(), "dynamo_backend",
                "dynamo_plugin");
    TorchDynamoPlugin plugin = options.dynamo_plugin.value_or(TorchDynamoPlugin());
    if (!options.dynamo_backend.empty()) plugin.backend = options.dynamo_backend;
    const auto read = [](const char* variable, std::string& field, const char* otherwise) {
        if (field.empty()) field = text_variable(variable).value_or(otherwise);
        field = lower(field);
    };
    read("ACCELERATE_DYNAMO_BACKEND", plugin.backend, "no");
    read("ACCELERATE_DYNAMO_MODE", plugin.mode, "default");
    check_choice("dynamo_backend", plugin.backend, known_dynamo_backends());
    check_choice("dynamo_plugin.mode", plugin.mode, {"default", "reduce-overhead", "max-autotune"});
    const auto read_flag = [](const char* variable, std::optional<bool>& field) {
        if (!field) field = flag_variable(variable);
    };
    read_flag("ACCELERATE_DYNAMO_USE_FULLGRAPH", plugin.fullgraph);
    read_flag("ACCELERATE_DYNAMO_USE_DYNAMIC", plugin.dynamic);
    read_flag("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", plugin.use_regional_compilation);
    options.dynamo_plugin = plugin;
    options.dynamo_backend.clear();
}

}  // namespace

void throw_not_implemented(const std::string& option, const char* what, const char* fix) {
    throw NotImplementedError(
        str("Accelerator: ", option, ": ", what, " is not implemented yet; ", fix));
}

const std::vector<std::string>& known_dynamo_backends() {
    static const std::vector<std::string> names = {"no",
                                                   "eager",
                                                   "aot_eager",
                                                   "inductor",
                                                   "aot_ts_nvfuser",
                                                   "nvprims_nvfuser",
                                                   "cudagraphs",
                                                   "ofi",
                                                   "fx2trt",
                                                   "onnxrt",
                                                   "tensorrt",
                                                   "aot_torchxla_trace_once",
                                                   "torhchxla_trace_once",
                                                   "ipex",
                                                   "tvm",
                                                   "hpu_backend"};
    return names;
}

void read_plugins(AcceleratorOptions& options) {
    read_dynamo(options);
    read_parallelism(options);
    resolve_fsdp(options);
    resolve_deepspeed(options);
    resolve_megatron(options);
}

void check_plugins(const AcceleratorOptions& options, int num_processes) {
    check_parallelism(options, num_processes);
    if (options.deepspeed_plugin) check_deepspeed(*options.deepspeed_plugin);
    check_megatron(options, num_processes);
}

void explain_dynamo(const AcceleratorOptions& options) {
    if (options.dynamo_plugin->compiles())
        log(LogLevel::warning, "dynamo_backend '", options.dynamo_plugin->backend,
            "' has no effect, because Axle does not compile models; use Accelerator::compile() to "
            "capture steps on a GPU as graphs");
}

}  // namespace axle::accel
