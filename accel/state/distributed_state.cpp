#include "accel/state/distributed_state.h"

#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "core/files/distributed_checkpoint.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "core/tree/tree_utils.h"

namespace axle::accel {
namespace {

using Path = std::vector<std::string>;

[[noreturn]] void fail_to_read(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": not the state of an optimizer: ", reason));
}

// Collects the entries of an optimizer's checkpoint. PyTorch stores the list of groups as one
// value, or each field of a group as a value, depending on its version.
class OptimizerEntries {
  public:
    explicit OptimizerEntries(const std::string& folder) : folder_(folder) {}

    // Adds an entry. The first key of the path is the name of the optimizer's state.
    void add(const Path& path, Tree value) {
        if (path.size() == 4 && path[1] == "state")
            states_.try_emplace(path[2], Tree::map()).first->second.set(path[3], std::move(value));
        else if (path.size() == 4 && path[1] == "param_groups")
            groups_.try_emplace(number(path[2]), Tree::map())
                .first->second.set(path[3], std::move(value));
        else if (path.size() == 2 && path[1] == "param_groups" && value.is_list())
            for (const Tree& group : value.elements())
                groups_.emplace(static_cast<std::int64_t>(groups_.size()), group);
        else
            fail(str("an entry must be in 'state' or in 'param_groups': ", text_of(path)));
    }
    // Returns the state with numbers instead of the parameters' names.
    Tree state() const {
        Tree states = Tree::map(), groups = Tree::list();
        for (const auto& [name, state] : states_) states.set(name, state);
        for (const auto& [index, group] : groups_) groups.push_back(group);
        return with_parameter_numbers(
            folder_, {{"state", std::move(states)}, {"param_groups", std::move(groups)}});
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const { fail_to_read(folder_, reason); }
    static std::string text_of(const Path& path) {
        std::string text;
        for (const std::string& key : path) text += (text.empty() ? "" : ".") + key;
        return in_quotes(text);
    }
    std::int64_t number(const std::string& text) const {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < 0)
            fail(str("the key of a group must be an integer of at least 0: ", in_quotes(text)));
        return value;
    }

    const std::string& folder_;
    std::map<std::string, Tree> states_;  // indexed by the name of the parameter
    std::map<std::int64_t, Tree> groups_;
};

}  // namespace

Tree with_parameter_numbers(const std::string& path, const Tree& saved) {
    const auto find = [&](const char* key) -> const Tree& {
        const Tree* const value = saved.is_map() ? saved.find(key) : nullptr;
        if (value == nullptr) fail_to_read(path, "'state' or 'param_groups' is missing");
        return *value;
    };
    const Tree &states = find("state"), &saved_groups = find("param_groups");
    if (!states.is_map() || !saved_groups.is_list())
        fail_to_read(
            path, str("'state' must be a map and 'param_groups' a list: they are ",
                      axle::name_of(states.kind()), " and ", axle::name_of(saved_groups.kind())));
    std::int64_t next = 0;
    Tree state = Tree::map(), groups = Tree::list();
    for (Tree group : saved_groups.elements()) {
        const Tree* const names = group.is_map() ? group.find("params") : nullptr;
        if (names == nullptr || !names->is_list())
            fail_to_read(path, "each group must have a list of parameters with the key 'params'");
        Tree numbers = Tree::list();
        for (const Tree& name : names->elements()) {
            if (name.is_number() && next == 0) return saved;
            if (!name.is_string()) fail_to_read(path, "a parameter of a group is not a name");
            const std::int64_t number = next++;
            numbers.push_back(number);
            if (const Tree* const found = states.find(name.string()))
                state.set(std::to_string(number), *found);
        }
        group.set("params", std::move(numbers));
        groups.push_back(std::move(group));
    }
    return {{"state", std::move(state)}, {"param_groups", std::move(groups)}};
}

nn::StateDict read_distributed_weights(const std::string& folder) {
    const DistributedCheckpoint checkpoint(folder);
    nn::StateDict state;
    for (const auto& [name, name_in_file] : checkpoint.names_in_state())
        state.emplace_back(name, checkpoint.read(name_in_file));
    return state;
}

Tree read_distributed_optimizer(const std::string& folder) {
    const DistributedCheckpoint checkpoint(folder);
    OptimizerEntries entries(folder);
    for (const auto& [name, tensor] : checkpoint.tensors())
        entries.add(tensor.path, checkpoint.read(name));
    for (const auto& [name, value] : checkpoint.values())
        entries.add(value.path, checkpoint.read_value(name));
    return entries.state();
}

}  // namespace axle::accel
