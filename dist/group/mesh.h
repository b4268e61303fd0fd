// DeviceMesh: arranges the processes of a group in a grid with named dimensions, for training that
// combines several kinds of parallelism.
//
//     dist::DeviceMesh mesh(group, {{"dp", 2}, {"tp", 4}});   // a group of eight processes
//     mesh.get_group("tp")->all_reduce(x);                    // over the four ranks of this row
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dist/group/process_group.h"

namespace axle::dist {

class DeviceMesh {
  public:
    struct Dimension {
        std::string name;
        int size = 1;
    };

    // Ranks are laid out in row-major order: neighbours along the last dimension have consecutive
    // ranks. All ranks of the group call it with the same dimensions (otherwise CommError). Throws
    // ValueError if the product of the sizes is not the size of the group, or if a name is empty or
    // repeated.
    DeviceMesh(std::shared_ptr<ProcessGroup> group, std::vector<Dimension> dimensions);

    const std::vector<Dimension>& dimensions() const { return dimensions_; }
    // Returns the group of all processes in the mesh.
    const std::shared_ptr<ProcessGroup>& group() const { return group_; }

    // Throws ValueError if no dimension has this name, as do all methods that take a name.
    int size(const std::string& name) const { return dimensions_[find(name)].size; }
    // Returns this process's index along a dimension, which is its rank in get_group(name).
    int coordinate(const std::string& name) const { return coordinates_[find(name)]; }
    const std::vector<int>& coordinates() const { return coordinates_; }

    // Returns the group of processes that differ from this one only along this dimension.
    std::shared_ptr<ProcessGroup> get_group(const std::string& name) const {
        return groups_[find(name)];
    }
    // Returns the group of processes that differ from this one only along these dimensions, ordered
    // row-major. All ranks of the mesh call it with the same, distinct names.
    std::shared_ptr<ProcessGroup> flatten(const std::vector<std::string>& names) const;

  private:
    std::size_t find(const std::string& name) const;

    std::shared_ptr<ProcessGroup> group_;
    std::vector<Dimension> dimensions_;
    std::vector<int> coordinates_;
    std::vector<std::shared_ptr<ProcessGroup>> groups_;  // by dimension
};

}  // namespace axle::dist
