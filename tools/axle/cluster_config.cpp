#include "tools/axle/cluster_config.h"

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <vector>

#include <pwd.h>
#include <unistd.h>

#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tools/axle/config_values.h"

namespace axle::launcher {
namespace {

// Calls f for each key of the file with its field, in the order of the keys in Accelerate's files.
template <class Config, class F>
void for_each_field(Config& c, F&& f) {
    f("command_file", c.command_file);
    f("commands", c.commands);
    f("compute_environment", c.compute_environment);
    f("debug", c.debug);
    f("deepspeed_config", c.deepspeed_config);
    f("distributed_type", c.distributed_type);
    f("downcast_bf16", c.downcast_bf16);
    f("dynamo_config", c.dynamo_config);
    f("enable_cpu_affinity", c.enable_cpu_affinity);
    f("fp8_config", c.fp8_config);
    f("fsdp_config", c.fsdp_config);
    f("gpu_ids", c.gpu_ids);
    f("machine_rank", c.machine_rank);
    f("main_process_ip", c.main_process_ip);
    f("main_process_port", c.main_process_port);
    f("main_training_function", c.main_training_function);
    f("megatron_lm_config", c.megatron_lm_config);
    f("mixed_precision", c.mixed_precision);
    f("mpirun_config", c.mpirun_config);
    f("num_machines", c.num_machines);
    f("num_processes", c.num_processes);
    f("parallelism_config", c.parallelism_config);
    f("rdzv_backend", c.rdzv_backend);
    f("same_network", c.same_network);
    f("tpu_env", c.tpu_env);
    f("tpu_name", c.tpu_name);
    f("tpu_use_cluster", c.tpu_use_cluster);
    f("tpu_use_sudo", c.tpu_use_sudo);
    f("tpu_vm", c.tpu_vm);
    f("tpu_zone", c.tpu_zone);
    f("use_cpu", c.use_cpu);
}

std::vector<std::string> known_keys() {
    std::vector<std::string> keys;
    const ClusterConfig config;
    for_each_field(config, [&](const char* name, const auto&) { keys.emplace_back(name); });
    return keys;
}

const std::vector<std::string>& distributed_types() {
    static const std::vector<std::string> types = {
        "NO",        "MULTI_CPU", "MULTI_GPU",   "MULTI_NPU",    "MULTI_MLU",
        "MULTI_XPU", "MULTI_HPU", "MULTI_SDAA",  "MULTI_NEURON", "MULTI_MUSA",
        "FSDP",      "DEEPSPEED", "MEGATRON_LM", "XLA"};
    return types;
}

bool is_section(const std::string& key) { return key.ends_with("_config"); }

// A converter from the keys of a file to a ClusterConfig.
class ConfigReader {
  public:
    ConfigReader(const Tree& tree, const std::string& name) : tree_(tree), name_(name) {
        if (!tree_.is_map()) fail("must be a map of keys to values");
    }

    ClusterConfig read() {
        const Tree* environment = tree_.find("compute_environment");
        if (environment && environment->is_string() && environment->string() != "LOCAL_MACHINE")
            fail("compute_environment is " + in_quotes(environment->string()) +
                 "; Axle supports only LOCAL_MACHINE");
        modernize();
        refuse_unknown_keys();
        ClusterConfig config;
        if (tree_["distributed_type"].is_string() && tree_["distributed_type"].string() == "NO")
            config.num_processes = 1;
        for_each_field(config, [&](const char* name, auto& value) {
            if (const Tree* found = tree_.find(name)) read_field(name, *found, value);
        });
        check(config);
        return config;
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const {
        throw ValueError(printable(name_) + ": " + reason);
    }
    [[noreturn]] void must_be(const char* key, const std::string& what) const {
        const Tree* given = tree_.find(key);
        fail(
            str(key, " must be ", what, given == nullptr ? "" : str(": ", printable(str(*given)))));
    }

    // Converts fields of old versions of the file. Also converts values that YAML parses as false
    // because the file contains an unquoted `no`. Throws ValueError if the file is so old that it
    // has no distributed_type.
    void modernize() {
        if (!tree_.contains("distributed_type"))
            fail("distributed_type is missing; run `axle config` to create a new file");
        const auto no_is_text = [&](const char* key, const char* text) {
            const Tree* value = tree_.find(key);
            if (value && value->is_boolean() && !value->boolean()) tree_.set(key, text);
        };
        no_is_text("distributed_type", "NO");
        no_is_text("mixed_precision", "no");
        if (const auto fp16 = take("fp16");
            fp16 && fp16->is_boolean() && fp16->boolean() && !tree_.contains("mixed_precision"))
            tree_.set("mixed_precision", "fp16");
        if (const auto backend = take("dynamo_backend")) {
            const bool none = !backend->is_string() || backend->string() == "NO";
            tree_.set("dynamo_config", none ? Tree() : Tree{{"dynamo_backend", *backend}});
        }
    }
    std::optional<Tree> take(const char* key) {
        const Tree* found = tree_.find(key);
        if (!found) return std::nullopt;
        const Tree value = *found;
        std::erase_if(tree_.entries(), [&](const Tree::Entry& e) { return e.key == key; });
        return value;
    }

    void refuse_unknown_keys() const {
        const std::vector<std::string> known = known_keys();
        std::string unknown;
        for (const auto& [key, value] : tree_.entries()) {
            if (std::find(known.begin(), known.end(), key) != known.end()) continue;
            const std::string near = nearest(key, known);
            unknown += (unknown.empty() ? "" : ", ") + in_quotes(key);
            if (!near.empty()) unknown += " (" + near + "?)";
        }
        if (!unknown.empty()) fail("unknown keys: " + unknown + "; correct or remove them");
    }

    void read_field(const char* key, const Tree& from, bool& value) const {
        if (from.is_null()) return;
        if (!from.is_boolean()) must_be(key, "true or false");
        value = from.boolean();
    }
    void read_field(const char* key, const Tree& from, int& value) const {
        if (from.is_null()) return;
        if (!from.is_integer() || !std::in_range<int>(from.integer()))
            must_be(key, "a 32-bit integer");
        value = static_cast<int>(from.integer());
    }
    void read_field(const char* key, const Tree& from, std::string& value) const {
        if (from.is_null()) return;
        if (!from.is_string()) must_be(key, "text");
        value = from.string();
    }
    void read_field(const char* key, const Tree& from, std::optional<std::string>& value) const {
        value.reset();
        if (from.is_null()) return;
        if (key == std::string_view("gpu_ids"))
            value = gpu_ids(from);
        else
            read_field(key, from, value.emplace());
    }
    void read_field(const char* key, const Tree& from, std::optional<int>& value) const {
        value.reset();
        if (!from.is_null()) read_field(key, from, value.emplace());
    }
    void read_field(const char* key, const Tree& from, Tree& value) const {
        if (is_section(key) && !from.is_null() && !from.is_map())
            must_be(key, "a map of its options");
        value = from;
    }
    // Returns gpu_ids as text. In a file it can also be a number, as in `gpu_ids: 1`, or a list, as
    // in `gpu_ids: [0, 1]`.
    std::string gpu_ids(const Tree& from) const {
        if (from.is_integer()) return str(from.integer());
        if (from.is_string()) return from.string();
        if (!from.is_list()) must_be("gpu_ids", "all, or comma-separated numbers");
        std::string ids;
        for (const Tree& id : from.elements()) ids += (ids.empty() ? "" : ",") + gpu_ids(id);
        return ids;
    }

    void check(const ClusterConfig& config) const {
        const auto& types = distributed_types();
        const std::string& type = config.distributed_type;
        if (std::find(types.begin(), types.end(), type) == types.end())
            fail("distributed_type must be one of " + joined(types) + ": " + in_quotes(type) +
                 (nearest(type, types).empty() ? ""
                                               : "; did you mean " + nearest(type, types) + "?"));
        if (config.num_machines < 1) must_be("num_machines", "at least 1");
        if (config.machine_rank < 0 || config.machine_rank >= config.num_machines)
            must_be("machine_rank",
                    str("from 0 to ", config.num_machines - 1, " (num_machines - 1)"));
        if (config.num_processes < -1 || config.num_processes == 0)
            must_be("num_processes", "at least 1, or -1 to give it on the command line");
        const int port = config.main_process_port.value_or(0);
        if (port < 0 || port > 65535) must_be("main_process_port", "from 0 to 65535");
        if (!config.mixed_precision) return;
        std::string precision = *config.mixed_precision;
        for (char& c : precision)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        for (const char* known : {"no", "fp16", "bf16", "fp8"})
            if (precision == known) return;
        must_be("mixed_precision", "no, fp16, bf16 or fp8");
    }

    Tree tree_;
    std::string name_;
};

// Returns true if Accelerate does not write this value to files.
bool is_left_out(const Tree& value) { return value.is_null() || (value.is_map() && value.empty()); }

// Returns a section with null instead of each empty map.
Tree without_empty_maps(const Tree& section) {
    Tree result = section;
    for (auto& [key, value] : result.entries()) {
        if (!value.is_map()) continue;
        value = value.empty() ? Tree() : without_empty_maps(value);
    }
    return result;
}

// Returns a tree with the keys of all maps sorted, as in Accelerate's files.
Tree sorted(const Tree& tree) {
    if (!tree.is_map()) return tree;
    Tree result = tree;
    std::sort(result.entries().begin(), result.entries().end(),
              [](const Tree::Entry& a, const Tree::Entry& b) { return a.key < b.key; });
    for (auto& [key, value] : result.entries()) value = sorted(value);
    return result;
}

Tree tree_of(const Tree& value) { return value.is_map() ? without_empty_maps(value) : value; }
template <class T>
Tree tree_of(const std::optional<T>& value) {
    return value ? Tree(*value) : Tree();
}
template <class T>
    requires std::is_arithmetic_v<T> || std::same_as<T, std::string>
Tree tree_of(const T& value) {
    return value;
}

bool is_json(const std::string& path) { return path.ends_with(".json"); }

bool is_said(const Tree& value) {
    if (value.is_null()) return false;
    if (value.is_boolean()) return value.boolean();
    if (value.is_string()) return !value.string().empty() && value.string() != "no";
    if (value.is_list())
        return std::any_of(value.elements().begin(), value.elements().end(), is_said);
    return true;
}

void warn_of_tpu_keys(const ClusterConfig& config, const std::string& path) {
    std::string keys;
    for_each_field(config, [&](std::string_view name, const auto& value) {
        const bool of_tpu =
            name.starts_with("tpu_") || name.starts_with("command") || name == "downcast_bf16";
        if (of_tpu && is_said(tree_of(value)))
            keys += (keys.empty() ? "" : ", ") + std::string(name);
    });
    if (!keys.empty())
        log(LogLevel::warning, printable(path), ": ", keys,
            ": these keys are only used for TPUs and are ignored");
}

std::string home() {
    if (const char* home = std::getenv("HOME"); home && *home) return home;
    const passwd* user = getpwuid(getuid());  // NOLINT(concurrency-mt-unsafe): one thread runs
    return user && user->pw_dir ? user->pw_dir : ".";
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

}  // namespace

std::string default_config_path() {
    std::string folder = variable("HF_HOME");
    if (folder.empty()) {
        const std::string cache = variable("XDG_CACHE_HOME");
        folder = (cache.empty() ? "~/.cache" : cache) + "/huggingface";
    }
    return expand_home(folder) + "/accelerate/default_config.yaml";
}

std::string expand_home(const std::string& path) {
    return path == "~" || path.starts_with("~/") ? home() + path.substr(1) : path;
}

ClusterConfig config_from_tree(const Tree& tree, const std::string& name) {
    return ConfigReader(tree, name).read();
}

ClusterConfig read_config(const std::string& path) {
    const std::string text = read_file(path, accel::kMaxYaml);
    Tree tree;
    if (is_json(path)) {
        try {
            tree = from_json(text);
        } catch (const ValueError& error) {
            throw ValueError(printable(path) + ": " + error.what());
        }
    } else {
        tree = accel::parse_yaml(text, path);
    }
    ClusterConfig config = config_from_tree(tree, path);
    warn_of_tpu_keys(config, path);
    return config;
}

std::optional<ClusterConfig> read_default_config() {
    const std::string path = default_config_path();
    if (!std::filesystem::exists(path)) return std::nullopt;
    return read_config(path);
}

Tree to_tree(const ClusterConfig& config) {
    Tree tree = Tree::map();
    for_each_field(config, [&](const char* name, const auto& value) {
        Tree field = sorted(tree_of(value));
        if (!is_left_out(field)) tree.set(name, std::move(field));
    });
    return tree;
}

void write_config(const ClusterConfig& config, const std::string& path) {
    const Tree tree = to_tree(config);
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (!folder.empty()) create_directories(folder);
    write_file_atomically(path, is_json(path) ? to_json(tree) + "\n" : accel::to_yaml(tree));
}

}  // namespace axle::launcher
