// The configuration of a program as structs: groups of typed options, whose defaults are changed by
// a YAML file and by `group.key=value` on the command line.
//
//     struct DataConfig {
//         accel::Required<std::string> data_dir;
//         std::int64_t batch_size = 32;
//         void visit(accel::ConfigFields& v) {
//             v("data_dir", data_dir), v("batch_size", batch_size);
//         }
//     };
//     struct Config {
//         DataConfig data;
//         void visit(accel::ConfigFields& v) { v("data", data); }
//     };
//
//     Config config;
//     const Tree resolved = accel::load_config(config, "config.yaml", {"data.batch_size=64"});
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::accel {

// An option without a default: load_config refuses a configuration that lacks it.
template <class T>
class Required {
  public:
    Required() = default;
    Required(T value) : value_(std::move(value)) {}  // NOLINT

    bool is_given() const { return value_.has_value(); }
    const T& operator*() const {
        assert(is_given());
        return *value_;
    }
    const T* operator->() const { return &**this; }
    operator const T&() const { return **this; }  // NOLINT

  private:
    std::optional<T> value_;
};

// What visit() of a group names its options to. An option is a bool, std::int64_t, std::uint64_t,
// double, std::string or std::vector<std::string>, one of these in std::optional (null is without)
// or in Required, or a struct with a visit() of its own.
class ConfigFields {
  public:
    // Of what was given, a map; null is an empty one.
    explicit ConfigFields(const Tree& given);

    template <class T>
    void operator()(const char* name, T& value) {
        if constexpr (requires { value.visit(*this); }) {
            begin_group(name);
            value.visit(*this);
            end_group();
        } else {
            const Tree* const given = find(name);
            if (given != nullptr) read(name, *given, value);
            resolve(name, tree_of(value));
        }
    }
    // The configuration as it is now; "???" stands for what is required and not given. ValueError
    // for keys that no group names, with those there are.
    Tree finish();
    // ValueError if something is required and not given, with the names of all that is.
    void check_complete() const;

  private:
    struct Group {
        std::string name;
        const Tree* given = nullptr;  // a map, or null
        std::vector<std::string> known = {};
        Tree resolved = Tree::map();
    };

    // Null if it is not given. Remembers that there is such a name.
    const Tree* find(const char* name);
    void resolve(const char* name, Tree value);
    void begin_group(const char* name);
    void end_group();
    void check_known() const;
    std::string path(const std::string& name) const;
    [[noreturn]] void fail(const char* name, const char* wanted, const Tree& given) const;

    void read(const char* name, const Tree& given, bool& value) const;
    void read(const char* name, const Tree& given, std::int64_t& value) const;
    void read(const char* name, const Tree& given, std::uint64_t& value) const;
    void read(const char* name, const Tree& given, double& value) const;
    void read(const char* name, const Tree& given, std::string& value) const;
    void read(const char* name, const Tree& given, std::vector<std::string>& value) const;
    template <class T>
    void read(const char* name, const Tree& given, std::optional<T>& value) const {
        if (is_none(given)) return value.reset();
        read(name, given, value.emplace());
    }
    template <class T>
    void read(const char* name, const Tree& given, Required<T>& value) const {
        if (is_missing(given)) return;
        T read_value = {};
        read(name, given, read_value);
        value = std::move(read_value);
    }
    // "null" is what the command line has for null.
    static bool is_none(const Tree& given);
    // Null, and "???", which marks in a file what its user must give.
    static bool is_missing(const Tree& given);

    template <class T>
    static Tree tree_of(const T& value) {
        return value;
    }
    static Tree tree_of(const std::vector<std::string>& value);
    template <class T>
    static Tree tree_of(const std::optional<T>& value) {
        return value ? tree_of(*value) : Tree();
    }
    template <class T>
    static Tree tree_of(const Required<T>& value) {
        return value.is_given() ? tree_of(*value) : Tree("???");
    }

    std::vector<Group> groups_;  // those that are open, the outermost first
    std::vector<std::string> missing_;
};

// What is given, as a map of maps: the file (none, if the path is empty) with `group.key=value` in
// place of what it says. A value of the command line is text: the option that it is for decides
// what it means, as in 10, 1e-3, true, null, [a, b]. FileError or ValueError for the file,
// UsageError for an override without a name or a '='.
Tree read_structured_config(const std::string& path, const std::vector<std::string>& overrides);

// Changes a configuration to what is given, and returns it resolved, every option with its value.
// ValueError also for a value of the wrong type.
template <class Config>
Tree load_config(Config& config, const std::string& path,
                 const std::vector<std::string>& overrides) {
    const Tree given = read_structured_config(path, overrides);
    ConfigFields fields(given);
    config.visit(fields);
    Tree resolved = fields.finish();
    fields.check_complete();
    return resolved;
}

// The configuration as it is, for help: "???" stands for what is required and not given.
template <class Config>
Tree config_tree(Config& config) {
    ConfigFields fields({});
    config.visit(fields);
    return fields.finish();
}

}  // namespace axle::accel
