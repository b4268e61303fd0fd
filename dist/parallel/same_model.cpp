#include "dist/parallel/same_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/ops.h"

namespace axle::dist {
namespace {

// Returns a text about the first line that differs, or "" if all lines are equal.
std::string find_difference(const Tree& lines, const Tree& expected) {
    const auto line = [](const Tree& of, std::size_t i) {
        return i < of.size() ? of.elements()[i].string() : std::string("no further tensor");
    };
    for (std::size_t i = 0; i < std::max(lines.size(), expected.size()); ++i)
        if (line(lines, i) != line(expected, i))
            return str("'", line(lines, i), "' instead of rank 0's '", line(expected, i), "'");
    return {};
}

}  // namespace

Tree describe(const nn::Module& model) {
    Tree lines = Tree::list();
    for (const nn::StateDict& state : {model.named_parameters(), model.named_buffers()})
        for (const auto& [name, tensor] : state)
            lines.push_back(str(name, " ", tensor.dtype(), " ", tensor.shape(),
                                tensor.requires_grad() ? "" : " frozen"));
    return lines;
}

void check_same_on_ranks(const char* op, const char* what, const Tree& lines, ProcessGroup& group) {
    if (group.size() == 1) return;
    const Tree differs = find_difference(lines, group.broadcast_object(lines));
    const std::vector<Tree> all = group.all_gather_object(differs);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (!all[rank].string().empty())
            throw CommError(str(op, ": the ranks' ", what, " differ: rank ", rank, " has ",
                                all[rank].string()));
}

}  // namespace axle::dist
