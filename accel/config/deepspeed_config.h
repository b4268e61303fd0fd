// DeepSpeedConfig: reads configurations of DeepSpeed, with the interface of Accelerate's
// HfDeepSpeedConfig. Values are named by the keys that lead to them, separated by dots:
//
//     accel::DeepSpeedConfig config("ds_config.json");
//     config.get_value("zero_optimization.stage").integer();
//
// Limits: a file has at most kMaxDeepSpeedConfig bytes. Text may be as long as such a file in
// base64. Time and memory are proportional to the size of the file or text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::accel {

inline constexpr std::int64_t kMaxDeepSpeedConfig = std::int64_t{1} << 20;

// A configuration of DeepSpeed: a map of options and sections. The value "auto" stands for a value
// that is filled in later (fill_match()). A configuration is a value: copies are independent.
class DeepSpeedConfig {
  public:
    DeepSpeedConfig() = default;   // an empty configuration
    DeepSpeedConfig(Tree config);  // NOLINT: a map, else throws ValueError
    // Reads a configuration from the path of a JSON file, from JSON text, or from JSON text in
    // base64 (standard or URL-safe, with or without padding). "" and "none" are empty
    // configurations. Throws FileError if a file can't be read or has more than kMaxDeepSpeedConfig
    // bytes. Throws ValueError for other text, for text above the limit, for invalid JSON, and for
    // JSON that is not a map.
    DeepSpeedConfig(const std::string& text);                                  // NOLINT
    DeepSpeedConfig(const char* text) : DeepSpeedConfig(std::string(text)) {}  // NOLINT

    const Tree& tree() const { return tree_; }
    bool empty() const { return tree_.empty(); }
    // Returns the path in quotes, or a description of a configuration that is not from a file.
    const std::string& source() const { return source_; }
    bool is_from_file() const { return source_.starts_with('\''); }

    // Returns a pointer to a value, or nullptr if it is missing.
    const Tree* find(std::string_view name) const;
    // Returns a value, or `otherwise` if it is missing.
    Tree get_value(std::string_view name, const Tree& otherwise = {}) const;
    // Returns the section that contains the value, and the value's key in the section. The section
    // is nullptr if it is missing or not a map. The value may be missing.
    std::pair<Tree*, std::string> find_config_node(std::string_view name);
    // Sets a value, and creates the sections in its name that are missing or null. Throws
    // ValueError if one of these sections is not a map.
    void set(std::string_view name, Tree value);
    // Removes a value or section. Throws ValueError if it is missing and must_exist is true.
    void del_config_sub_tree(std::string_view name, bool must_exist = false);

    // Return whether the value exists, is not null, and is true (is_true) or false (is_false) in
    // Python. 0, "", and empty lists and maps are false.
    bool is_true(std::string_view name) const;
    bool is_false(std::string_view name) const;
    // Returns whether the value is "auto".
    bool is_auto(std::string_view name) const;

    bool is_zero2() const { return has_stage(2); }
    bool is_zero3() const { return has_stage(3); }
    // Returns whether stage 2 or 3 offloads to "cpu" or "nvme".
    bool is_offload() const;

    // Replaces a value "auto" by its value in `values`, a map whose keys are whole names such as
    // "optimizer.params.lr". Throws ValueError if `values` does not contain the name of such a
    // value. Other values, and missing ones, are not changed. The second form adds a line to
    // `mismatches` if the value is neither "auto" nor null and differs from the value in `values`.
    void fill_match(std::string_view name, const Tree& values);
    void fill_match(std::string_view name, const Tree& values,
                    std::vector<std::string>& mismatches);
    // Calls fill_match() for all values. Throws the errors of fill_match() and, unless must_match
    // is false, one ValueError that lists all mismatches.
    void deepspeed_config_process(const Tree& values, bool must_match = true);

  private:
    bool has_stage(int stage) const;

    Tree tree_ = Tree::map();
    std::string source_ = "the DeepSpeed configuration";
};

using HfDeepSpeedConfig = DeepSpeedConfig;  // the name in Accelerate

}  // namespace axle::accel
