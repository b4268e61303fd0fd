#include "optim/state_file.h"

#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"

namespace axle::optim {
namespace {

constexpr std::string_view kPrefix = "state.";
constexpr const char* kGroups = "param_groups";

// Splits "state.12.exp_avg" into 12 and "exp_avg". Throws ValueError for a name of another form, or
// if the index is not less than `params`.
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

// Splits "old_dirs.12" into "old_dirs" and 12. The second value is nullopt if the name does not end
// with a number.
std::pair<std::string, std::optional<std::size_t>> parse_key(const std::string& key) {
    const std::size_t dot = key.rfind('.');
    if (dot == std::string::npos) return {key, std::nullopt};
    std::size_t place = 0;
    const char* const end = key.data() + key.size();
    const auto [last, error] = std::from_chars(key.data() + dot + 1, end, place);
    if (error != std::errc() || last != end) return {key, std::nullopt};
    return {key.substr(0, dot), place};
}

Tree read_state(const SafetensorsFile& file, std::size_t params) {
    std::map<std::size_t, Tree> states;
    std::map<std::pair<std::size_t, std::string>, std::map<std::size_t, Tensor>> lists;
    for (const SafetensorsFile::Entry& entry : file.entries()) {
        const auto [index, whole_key] = parse_name(entry.name, params);
        const auto [key, place] = parse_key(whole_key);
        if (place)
            lists[{index, key}][*place] = file.tensor(entry);
        else
            states[index].set(key, file.tensor(entry));
    }
    for (const auto& [name, elements] : lists) {
        const auto& [index, key] = name;
        Tree list = Tree::list();
        for (const auto& [place, element] : elements) {
            if (place != list.size())
                throw ValueError(str("load_state: the tensor ",
                                     in_quotes(str(kPrefix, index, ".", key, ".", list.size())),
                                     " is missing"));
            list.push_back(element);
        }
        states[index].set(key, std::move(list));
    }
    Tree tree = Tree::map();
    for (auto& [index, state] : states)
        tree.entries().push_back({std::to_string(index), std::move(state)});
    return tree;
}

void append(NamedTensors& tensors, const std::string& name, const Tree& value) {
    if (value.is_list()) {
        for (std::size_t i = 0; i < value.size(); ++i) append(tensors, str(name, ".", i), value[i]);
    } else if (value.is_integer()) {
        tensors.emplace_back(name, full({}, value.integer(), {.dtype = i64}));
    } else if (value.is_number()) {
        tensors.emplace_back(name, full({}, value.number(), {.dtype = f64}));
    } else {
        tensors.emplace_back(name, value.tensor());
    }
}

}  // namespace

void save_state(const std::string& path, Optimizer& optimizer) {
    const Tree saved = optimizer.state_dict();
    NamedTensors tensors;
    for (const auto& [index, state] : saved["state"].entries())
        for (const auto& [key, value] : state.entries())
            append(tensors, str(kPrefix, index, ".", key), value);
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
