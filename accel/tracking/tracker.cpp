#include "accel/tracking/tracker.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/text/text.h"

namespace axle::accel {
namespace {

void flatten_into(std::vector<Tree::Entry>& leaves, const std::string& prefix, const Tree& values,
                  int depth) {
    if (depth > kMaxTreeDepth)
        throw ValueError(str("tracker: maps of values can be nested at most ", kMaxTreeDepth,
                             " levels deep: '", prefix.substr(0, 64), "...'"));
    for (const auto& [key, value] : values.entries()) {
        if (value.is_map())
            flatten_into(leaves, prefix + key + "/", value, depth + 1);
        else if (value.is_tensor() && value.tensor().numel() == 1)
            leaves.push_back({prefix + key, value.tensor().item()});
        else
            leaves.push_back({prefix + key, value});
    }
}

}  // namespace

std::string TrackerRun::folder() const {
    return (std::filesystem::path(logging_dir) / project_name).string();
}

std::vector<Tree::Entry> flattened(const Tree& values) {
    std::vector<Tree::Entry> leaves;
    flatten_into(leaves, "", values, 0);
    return leaves;
}

Tree summarised(const Tree& values) {
    return map_tensors(values, [](const Tensor& tensor) -> Tree {
        if (tensor.numel() == 1) return tensor.item();
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const std::vector<double> x = tensor.to_vector();
        if (x.empty()) return Tree{{"min", nan}, {"max", nan}, {"mean", nan}, {"std", nan}};
        double sum = 0, squares = 0;
        for (const double v : x) sum += v;
        const double mean = sum / static_cast<double>(x.size());
        for (const double v : x) squares += (v - mean) * (v - mean);
        const auto [min, max] = std::minmax_element(x.begin(), x.end());
        return Tree{{"min", std::isnan(sum) ? nan : *min},
                    {"max", std::isnan(sum) ? nan : *max},
                    {"mean", mean},
                    {"std", std::sqrt(squares / static_cast<double>(x.size() - 1))}};
    });
}

void check_options(const std::string& tracker, const Tree& options,
                   const std::vector<std::string>& known) {
    if (options.is_null()) return;
    for (const auto& [key, value] : options.entries()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::string meant = nearest(key, known);
        std::string names;
        for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
        throw ValueError(str("tracker '", tracker, "': unknown option '", key, "'",
                             meant.empty() ? "; expected one of "
                                           : "; did you mean '" + meant + "'? Expected one of ",
                             names));
    }
}

std::optional<std::int64_t> purge_step(const std::string& tracker, const Tree& options) {
    const Tree* step = options.is_null() ? nullptr : options.find("purge_step");
    if (step == nullptr || step->is_null()) return std::nullopt;
    if (!step->is_integer() || step->integer() < 0)
        throw ValueError(
            str("tracker '", tracker, "': purge_step must be a non-negative integer: ", *step));
    return step->integer();
}

}  // namespace axle::accel
