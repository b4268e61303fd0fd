#include "optim/state_file.h"

#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "core/files/safetensors.h"

namespace axle::optim {
namespace {

constexpr std::string_view kPrefix = "state.";
constexpr const char* kGroups = "param_groups";

// Splits "state.12.exp_avg" into 12 and "exp_avg".
std::pair<std::size_t, std::string> parse_name(const std::string& name, std::size_t params) {
    std::size_t index = 0;
    const char* const end = name.data() + name.size();
    if (name.starts_with(kPrefix)) {
        const auto [dot, error] = std::from_chars(name.data() + kPrefix.size(), end, index);
        if (error == std::errc() && end - dot >= 2 && *dot == '.') {
            if (index < params) return {index, std::string(dot + 1, end)};
            throw ValueError(str("load_state: ", in_quotes(name),
                                 ": the parameter does not exist: the optimizer has ", params,
                                 " parameters"));
        }
    }
    throw ValueError("load_state: the tensor name must be 'state.<parameter>.<name>': " +
                     in_quotes(name));
}

Tree read_state(const SafetensorsFile& file, std::size_t params) {
    std::map<std::size_t, Tree> states;
    for (const SafetensorsFile::Entry& entry : file.entries()) {
        const auto [index, key] = parse_name(entry.name, params);
        states[index].set(key, file.tensor(entry));
    }
    Tree tree = Tree::map();
    for (auto& [index, state] : states)
        tree.entries().push_back({std::to_string(index), std::move(state)});
    return tree;
}

}  // namespace

void save_state(const std::string& path, Optimizer& optimizer) {
    const Tree saved = optimizer.state_dict();
    NamedTensors tensors;
    for (const auto& [index, state] : saved["state"].entries())
        for (const auto& [key, value] : state.entries())
            tensors.emplace_back(str(kPrefix, index, ".", key), value.tensor());
    save_safetensors(path, tensors, {{kGroups, to_json(saved[kGroups], -1)}});
}

void load_state(const std::string& path, Optimizer& optimizer) {
    const SafetensorsFile file(path);
    try {
        const auto groups = file.metadata().find(kGroups);
        if (groups == file.metadata().end())
            throw ValueError(str("load_state: the metadata has no entry ", kGroups));
        optimizer.load_state_dict({{kGroups, from_json(groups->second)},
                                   {"state", read_state(file, optimizer.parameters().size())}});
    } catch (const FileError&) {
        throw;  // the message already has the path
    } catch (const Error& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

}  // namespace axle::optim
