// Private to nn: selects the Linear layers that a configuration names, with the rules of PEFT.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

// Returns whether an element is the name, or the part of the name after a dot.
bool is_selected(const std::string& name, const std::vector<std::string>& elements);
// Returns whether a module is inside of the module `parent`.
bool is_below(const std::string& name, const std::string& parent);

struct LinearSelection {
    // Names of layers, by the rule of is_selected(). {"all-linear"} selects all Linear layers.
    std::vector<std::string> targets;
    // A regular expression for whole names, in place of the targets unless it is empty.
    std::string pattern;
    // Returns whether a layer is left out although it is selected.
    std::function<bool(const std::string& name)> is_excluded;
};
using NamedLinears = std::vector<std::pair<std::string, Linear*>>;

// Returns the selected layers, each under its first name, and ignores selected policies. `verb`
// completes the message "only Linear layers can be ..." of the ValueError for a selected module
// that is not a Linear. Also throws ValueError if no layer is selected, and for an invalid pattern.
// Messages begin with `who`.
NamedLinears select_linears(Module& model, const LinearSelection& selection, const char* who,
                            const char* verb);

// Logs a warning if elements of a list, which is named `list`, select no module of the model.
void warn_of_unused(Module& model, const char* who, const char* list,
                    const std::vector<std::string>& elements);
// Logs the warning that the model has no `what` for the elements in `unused`, unless it is empty.
void warn_of_unused(const char* who, const char* list, const std::vector<std::string>& unused,
                    const char* what);

// Throws UsageError, with a message that begins with `who`, if a parameter is sharded.
void check_whole(const Module& model, const char* who);
// Also throws UsageError if the model is prepared. The message says that `what` must be before
// prepare().
void check_unprepared(const Module& model, const char* who, const char* what);

}  // namespace axle::nn
