// Private to dist: what the ranks tell each other before a collective on nested values moves
// anything, so that all of them go on, or all of them throw.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::inline v0::dist {

// An operation's name for messages, and the arguments that must be everybody's.
struct Call {
    const char* op;
    std::string arguments = {};
    std::string text() const { return arguments.empty() ? op : str(op, ' ', arguments); }
};

struct Leaf {
    std::string place;
    Tree value;
};

// In the order of the tree.
std::vector<Leaf> leaves_of(const char* op, const Tree& tree);
// The tree with others in place of its leaves.
Tree with_leaves(const char* op, const Tree& tree, const std::vector<Tree>& values);

// What another process must know of a tensor to make one like it, or of another leaf to refuse it.
struct LeafDescription {
    std::string place;
    Tree::Kind kind = Tree::Kind::null;
    DType dtype = f32;
    Device::Type device = Device::Type::cpu;
    Shape shape = {};

    LeafDescription() = default;
    explicit LeafDescription(const Leaf& leaf);
    explicit LeafDescription(const Tree& said);
    Tree to_tree() const;
};

// One tensor of every rank.
struct Column {
    std::string place;
    std::size_t index = 0;           // among this rank's leaves
    std::vector<Shape> shapes = {};  // by rank
};

// The ranks' trees are built alike, of tensors with the same dtypes on devices of the same type;
// else the constructor throws, on every rank.
class Agreement {
  public:
    Agreement(ProcessGroup& group, const Call& call, const Tree& tree);

    // This rank's, in the order of the tree.
    const std::vector<Leaf>& leaves() const { return leaves_; }
    // In the same order on every rank.
    const std::vector<Column>& columns() const { return columns_; }
    const Tensor& own(const Column& column) const { return leaves_[column.index].value.tensor(); }

    // ShapeError that lists each rank's; fix ends the text.
    void check_same_shapes(const char* fix = "") const;
    [[noreturn]] void throw_shapes(const Column& column, const char* fix) const;

  private:
    using Row = std::vector<LeafDescription>;  // of a leaf, by rank

    void check_places(const std::vector<Row>& said) const;
    void check(const Row& row) const;

    const char* op_;
    std::vector<Leaf> leaves_;
    std::vector<Column> columns_;
};

}  // namespace axle::inline v0::dist
