// Configuration of a program as structs of typed options. A YAML file and `group.key=value`
// arguments of the command line override the defaults.
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

// An option without a default: load_config() throws ValueError if it is not given.
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

// The visitor of configuration structs. The visit() of a struct calls the visitor with the name and
// the value of each option. An option is a struct with its own visit(), or a value: bool,
// std::int64_t, std::uint64_t, double, std::string or std::vector<std::string>. A value may be in
// std::optional (null resets it) or Required. The call throws ValueError for a value of the wrong
// type, and for unknown keys of a struct.
class ConfigFields {
  public:
    // Reads the options from a map, `given`, which must outlive this object. A null `given` is read
    // as an empty map.
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
    // Returns the resolved configuration, with "???" for required options that are not given.
    // Throws ValueError for unknown keys; the message lists the known keys.
    Tree finish();
    // Throws ValueError with the names of all required options that are not given.
    void check_complete() const;

  private:
    struct Group {
        std::string name;
        const Tree* given = nullptr;  // a map, or nullptr
        std::vector<std::string> known = {};
        Tree resolved = Tree::map();
    };

    // Returns the value of an option, or nullptr if it is not given. Adds the name to the known
    // keys.
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
    // Returns whether the value is null (on the command line: `null`).
    static bool is_none(const Tree& given);
    // Returns whether the value is null or "???". The text "???" marks required options in a file.
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

    std::vector<Group> groups_;  // the groups being visited, the outermost first
    std::vector<std::string> missing_;
};

// Returns the map of a YAML file (an empty map if the path is empty) with the overrides applied. An
// override is text of the form `group.key=value`. Its value is parsed by the type of the option,
// for example 10, 1e-3, true, null or [a, b]. Throws FileError if the file can't be read,
// ValueError if it is not a YAML map, and UsageError for an override without a name or a '='.
Tree read_structured_config(const std::string& path, const std::vector<std::string>& overrides);

// Sets the options that the file or the overrides contain, and returns a map with the values of all
// options. Throws the errors of read_structured_config(), and ValueError for values of the wrong
// type, unknown keys and missing options.
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

// Returns a map with the current values of all options, for help texts. Required options that are
// not set have the value "???".
template <class Config>
Tree config_tree(Config& config) {
    ConfigFields fields({});
    config.visit(fields);
    return fields.finish();
}

}  // namespace axle::accel
