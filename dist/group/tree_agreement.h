// Private to dist: the check that all ranks pass compatible nested values to a collective. It runs
// before any data is sent, so that either all ranks continue or all ranks throw.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// An operation: its name for error messages, and the arguments that must be equal on all ranks.
struct OperationCall {
    const char* op;
    std::string arguments = {};
    std::string text() const { return arguments.empty() ? op : str(op, ' ', arguments); }
};

struct Leaf {
    std::string place;  // the path in the tree, such as batch["x"][0]
    Tree value;
};

// Returns the leaves in the order of the tree.
std::vector<Leaf> leaves_of(const char* op, const Tree& tree);
// Returns the tree with its leaves replaced by `values`, in the order of leaves_of().
Tree with_leaves(const char* op, const Tree& tree, const std::vector<Tree>& values);

// The description of a leaf that a rank sends to the other ranks.
struct LeafDescription {
    std::string place;
    Tree::Kind kind = Tree::Kind::null;
    DType dtype = f32;
    Device::Type device = Device::Type::cpu;
    Shape shape = {};

    LeafDescription() = default;
    explicit LeafDescription(const Leaf& leaf);
    explicit LeafDescription(const Tree& descriptions);
    Tree to_tree() const;
};

// The leaves at one place of the trees of all ranks.
struct Column {
    std::string place;
    std::size_t index = 0;           // index into this rank's leaves
    std::vector<Shape> shapes = {};  // indexed by rank
};

// The leaves of all ranks, matched by their place in the tree. All ranks must call the constructor.
// The constructor throws its errors on all ranks. It throws CommError if the ranks pass different
// `call`s, and ValueError if the trees differ in structure or a leaf is not a tensor. It throws
// DTypeError if dtypes differ, and DeviceError if device types differ or a tensor is on the meta
// device.
class TreeAgreement {
  public:
    TreeAgreement(ProcessGroup& group, const OperationCall& call, const Tree& tree);

    // Returns this rank's leaves, in the order of the tree.
    const std::vector<Leaf>& leaves() const { return leaves_; }
    // Returns the columns in an order that is the same on every rank.
    const std::vector<Column>& columns() const { return columns_; }
    const Tensor& own(const Column& column) const { return leaves_[column.index].value.tensor(); }

    // Throws ShapeError with each rank's shape unless every leaf has the same shape on all ranks.
    // The message ends with `fix`.
    void check_same_shapes(const char* fix = "") const;
    [[noreturn]] void throw_shapes(const Column& column, const char* fix) const;

  private:
    using Row = std::vector<LeafDescription>;  // the descriptions of one leaf, indexed by rank

    void check_places(const std::vector<Row>& descriptions) const;
    void check(const Row& row) const;

    const char* op_;
    std::vector<Leaf> leaves_;
    std::vector<Column> columns_;
};

}  // namespace axle::dist
