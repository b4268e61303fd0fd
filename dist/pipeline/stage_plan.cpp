#include "dist/pipeline/stage_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr const char* kOp = "Pipeline";

std::string list_of(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += str(text.empty() ? "" : ", ", number);
    return text;
}

std::vector<int> sizes_of(const std::vector<nn::Piece>& pieces, int stages,
                          const std::vector<int>& sizes) {
    if (sizes.empty()) {
        std::vector<double> costs;
        costs.reserve(pieces.size());
        for (const nn::Piece& piece : pieces) costs.push_back(piece.cost);
        return balanced_sizes(costs, stages);
    }
    const bool fits =
        std::ssize(sizes) == stages && std::ranges::min(sizes) >= 1 &&
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == std::ssize(pieces);
    if (!fits)
        throw ValueError(str(kOp, ": stage_sizes must be ", stages,
                             " positive numbers whose sum is ", pieces.size(),
                             " (the number of pieces): ", list_of(sizes)));
    return sizes;
}

}  // namespace

std::vector<int> balanced_sizes(const std::vector<double>& costs, int stages) {
    const auto count = static_cast<int>(costs.size());
    if (count < stages)
        throw ValueError(str(kOp, ": each stage needs at least one piece of the model: ", stages,
                             " stages, ", count, " pieces"));
    std::vector<double> sums = {0};
    for (const double cost : costs) sums.push_back(sums.back() + cost);
    // Dynamic programming over divisions of the first n pieces into s stages. best[s][n] is the
    // smallest possible cost of the most expensive stage. from[s][n] is the number of pieces in the
    // first s - 1 stages of that division.
    const auto at = [&](int s, int n) {
        return static_cast<std::size_t>(s) * static_cast<std::size_t>(count + 1) +
               static_cast<std::size_t>(n);
    };
    std::vector<double> best(at(stages, count) + 1, std::numeric_limits<double>::infinity());
    std::vector<int> from(best.size(), 0);
    best[at(0, 0)] = 0;
    for (int s = 1; s <= stages; ++s)
        for (int n = s; n <= count - (stages - s); ++n)
            for (int before = s - 1; before < n; ++before) {
                const double cost =
                    std::max(best[at(s - 1, before)], sums[static_cast<std::size_t>(n)] -
                                                          sums[static_cast<std::size_t>(before)]);
                if (cost < best[at(s, n)]) best[at(s, n)] = cost, from[at(s, n)] = before;
            }
    std::vector<int> sizes(static_cast<std::size_t>(stages));
    for (int s = stages, n = count; s > 0; n = from[at(s, n)], --s)
        sizes[static_cast<std::size_t>(s - 1)] = n - from[at(s, n)];
    return sizes;
}

bool Held::is_on(int rank) const { return std::ranges::binary_search(ranks, rank); }

StagePlan::StagePlan(const nn::Module& model, const std::vector<nn::Piece>& pieces, int ranks,
                     int chunks, const std::vector<int>& sizes) {
    begins_.push_back(0);
    for (const int size : sizes_of(pieces, ranks * chunks, sizes))
        begins_.push_back(begins_.back() + size);
    std::unordered_map<const Impl*, std::set<int>> users;
    for (int stage = 0; stage < stages(); ++stage) {
        bool has_parameters = false;
        const auto add = [&](const Tensor& tensor) {
            users[tensor.impl().get()].insert(stage % ranks);
        };
        for (int i = begin(stage); i < begin(stage + 1); ++i) {
            const nn::Piece& piece = pieces[static_cast<std::size_t>(i)];
            for (const nn::Module* module : piece.modules) {
                for (const Tensor& parameter : module->parameters())
                    add(parameter), has_parameters = true;
                for (const auto& [name, buffer] : module->named_buffers()) add(buffer);
            }
            for (const Tensor& tensor : piece.tensors) add(tensor), has_parameters = true;
        }
        if (!has_parameters)
            throw ValueError(
                str(kOp, ": stage ", stage, " has no parameters: its pieces are ",
                    in_quotes(pieces[static_cast<std::size_t>(begin(stage))].name), " to ",
                    in_quotes(pieces[static_cast<std::size_t>(begin(stage + 1)) - 1].name)));
    }
    for (const auto& [name, parameter] : model.named_parameters()) {
        const auto found = users.find(parameter.impl().get());
        if (found == users.end())
            throw ValueError(str(kOp, ": no piece uses the parameter ", in_quotes(name)));
        parameters_.push_back({name, parameter, {found->second.begin(), found->second.end()}});
    }
    for (const auto& [name, buffer] : model.named_buffers())
        if (const auto found = users.find(buffer.impl().get()); found != users.end())
            buffers_.push_back({name, buffer, {found->second.begin(), found->second.end()}});
    for (const std::vector<Held>* list : {&parameters_, &buffers_})
        for (const Held& held : *list) index_.emplace(held.tensor.impl().get(), &held);
}

const Held* StagePlan::find(const Tensor& tensor) const {
    const auto found = index_.find(tensor.impl().get());
    return found == index_.end() ? nullptr : found->second;
}

std::string StagePlan::text() const {
    std::string text = str("stages begin at the pieces ", list_of(begins_));
    for (const Held& held : parameters_)
        text += str("; ", held.name, ' ', held.tensor.dtype(), ' ', held.tensor.shape(), " on ",
                    list_of(held.ranks));
    return text;
}

}  // namespace axle::dist
