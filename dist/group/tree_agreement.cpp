#include "dist/group/tree_agreement.h"

#include <algorithm>
#include <numeric>

#include "core/tree/tree_utils.h"
#include "dist/group/shared_error.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// Returns text such as "rank 0 [2], rank 1 [3]", where of(0) is "[2]".
template <class F>
std::string by_rank(std::size_t size, F&& of) {
    std::string text;
    for (std::size_t rank = 0; rank < size; ++rank)
        text += str(rank == 0 ? "rank " : ", rank ", rank, ' ', of(rank));
    return text;
}

}  // namespace

std::vector<Leaf> leaves_of(const char* op, const Tree& tree) {
    std::vector<Leaf> leaves;
    map_leaves(op, tree, [&](const Tree& leaf, const std::string& place) {
        leaves.push_back({place, leaf});
        return leaf;
    });
    return leaves;
}

Tree with_leaves(const char* op, const Tree& tree, const std::vector<Tree>& values) {
    std::size_t i = 0;
    return map_leaves(op, tree, [&](const Tree&, const std::string&) { return values[i++]; });
}

LeafDescription::LeafDescription(const Leaf& leaf) : place(leaf.place), kind(leaf.value.kind()) {
    if (kind != Tree::Kind::tensor) return;
    const Tensor& t = leaf.value.tensor();
    dtype = t.dtype();
    device = t.device().type;
    shape = t.shape();
}

LeafDescription::LeafDescription(const Tree& descriptions)
    : place(descriptions[0].string()),
      kind(static_cast<Tree::Kind>(descriptions[1].integer())),
      dtype(static_cast<DType>(descriptions[2].integer())),
      device(static_cast<Device::Type>(descriptions[3].integer())) {
    for (std::size_t i = 4; i < descriptions.size(); ++i)
        shape.push_back(descriptions[i].integer());
}

Tree LeafDescription::to_tree() const {
    Tree descriptions = Tree::list(
        {place, static_cast<int>(kind), static_cast<int>(dtype), static_cast<int>(device)});
    for (const std::int64_t size : shape) descriptions.push_back(size);
    return descriptions;
}

TreeAgreement::TreeAgreement(ProcessGroup& group, const OperationCall& call, const Tree& tree)
    : op_(call.op) {
    std::vector<std::size_t> order;
    const auto described = [&] {
        leaves_ = leaves_of(op_, tree);
        order.resize(leaves_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        // Leaves are sorted, because maps may have a different order of keys on each rank.
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return leaves_[a].place < leaves_[b].place;
        });
        Tree descriptions = Tree::list();
        for (const std::size_t i : order)
            descriptions.push_back(LeafDescription(leaves_[i]).to_tree());
        return descriptions;
    };
    std::vector<Row> descriptions;
    for (const Tree& of_rank : gather_or_throw(group, op_, described, call.text())) {
        descriptions.emplace_back();
        for (const Tree& leaf : of_rank.elements()) descriptions.back().emplace_back(leaf);
    }
    check_places(descriptions);
    for (std::size_t i = 0; i < order.size(); ++i) {
        Row row;
        for (const Row& rank : descriptions) row.push_back(rank[i]);
        check(row);
        columns_.push_back({leaves_[order[i]].place, order[i]});
        for (const LeafDescription& leaf : row) columns_.back().shapes.push_back(leaf.shape);
    }
}

// Throws ValueError unless all ranks have leaves at the same places. Places are sorted, so the
// first difference is a leaf that is missing on a rank.
void TreeAgreement::check_places(const std::vector<Row>& descriptions) const {
    const Row& first = descriptions[0];
    for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
        const Row& other = descriptions[rank];
        const auto [a, b] =
            std::mismatch(first.begin(), first.end(), other.begin(), other.end(),
                          [](const auto& x, const auto& y) { return x.place == y.place; });
        if (a == first.end() && b == other.end()) continue;
        const bool has = a == first.end() || (b != other.end() && b->place < a->place);
        throw ValueError(str(op_,
                             ": the ranks' values differ in structure: ", has ? b->place : a->place,
                             " exists on rank ", has ? rank : 0, ", not on rank ", has ? 0 : rank));
    }
}

void TreeAgreement::check(const Row& row) const {
    const LeafDescription& first = row[0];
    for (std::size_t rank = 0; rank < row.size(); ++rank)
        if (row[rank].kind != Tree::Kind::tensor)
            throw ValueError(str(op_, ": ", first.place, " is ", axle::name_of(row[rank].kind),
                                 ", not a tensor, on rank ", rank));
    const auto same = [&](auto LeafDescription::*field) {
        return std::all_of(row.begin(), row.end(),
                           [&](const auto& leaf) { return leaf.*field == first.*field; });
    };
    if (!same(&LeafDescription::dtype))
        throw DTypeError(str(op_, ": ", first.place, " has different dtypes: ",
                             by_rank(row.size(), [&](auto rank) { return row[rank].dtype; })));
    if (!same(&LeafDescription::device))
        throw DeviceError(str(op_, ": ", first.place,
                              " is on different devices: ", by_rank(row.size(), [&](auto rank) {
                                  return Device{row[rank].device};
                              })));
    if (first.device == Device::Type::meta)
        throw DeviceError(str(op_, ": ", first.place, " is on the meta device and has no data"));
}

void TreeAgreement::check_same_shapes(const char* fix) const {
    for (const Column& column : columns_)
        for (const Shape& shape : column.shapes)
            if (shape != column.shapes[0]) throw_shapes(column, fix);
}

void TreeAgreement::throw_shapes(const Column& column, const char* fix) const {
    const auto& shapes = column.shapes;
    throw ShapeError(str(op_, ": ", column.place, " has different shapes: ",
                         by_rank(shapes.size(), [&](auto rank) { return shapes[rank]; }), fix));
}

}  // namespace axle::dist
