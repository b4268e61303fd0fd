// DeviceMesh: a grid of the processes of a group, with named dimensions, for training that combines
// several kinds of parallelism.
//
//     dist::DeviceMesh mesh(group, {{"dp", 2}, {"tp", 4}});   // a group of eight processes
//     mesh.get_group("tp")->all_reduce(x);                    // over the four ranks of this row
#pragma once

#include <cstddef>
#include <map>
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

    // Creates a mesh. Ranks are in row-major order: neighbors along the last dimension have
    // consecutive ranks. All ranks of the group must pass the same dimensions. Throws CommError on
    // a rank whose dimensions differ from the dimensions of rank 0. Throws ValueError if a size is
    // less than 1, if the product of the sizes differs from the size of the group, or if a name is
    // empty or repeated.
    DeviceMesh(std::shared_ptr<ProcessGroup> group, std::vector<Dimension> dimensions);

    const std::vector<Dimension>& dimensions() const { return dimensions_; }
    // Returns the group of all processes in the mesh.
    const std::shared_ptr<ProcessGroup>& group() const { return group_; }

    // Returns whether the mesh has a dimension with this name.
    bool has(const std::string& name) const;
    // Returns the number of processes along a dimension. size(), coordinate(), get_group(),
    // flatten() and add_flattened() throw ValueError for unknown names of dimensions.
    int size(const std::string& name) const { return dimensions_[find(name)].size; }
    // Returns this process's index along a dimension, which is its rank in get_group(name).
    int coordinate(const std::string& name) const { return coordinates_[find(name)]; }
    const std::vector<int>& coordinates() const { return coordinates_; }

    // Returns the group of the processes that have the same coordinates as this process in all
    // other dimensions. `name` can also be a name that was passed to add_flattened().
    std::shared_ptr<ProcessGroup> get_group(const std::string& name) const;
    // Creates and returns a group, in row-major order. Its processes have the same coordinates as
    // this process in all other dimensions. All ranks of the mesh must call flatten() with the same
    // names. Throws ValueError if a name is repeated.
    std::shared_ptr<ProcessGroup> flatten(const std::vector<std::string>& names) const;
    // Stores flatten(names) under a name. If `names` is empty, the group has one process. All ranks
    // of the mesh must call this function. Throws ValueError if the name is in use or `names` has a
    // duplicate.
    void add_flattened(const std::string& name, const std::vector<std::string>& names);

  private:
    std::size_t find(const std::string& name) const;

    std::shared_ptr<ProcessGroup> group_;
    std::vector<Dimension> dimensions_;
    std::vector<int> coordinates_;
    std::vector<std::shared_ptr<ProcessGroup>> groups_;  // the group of each dimension
    std::map<std::string, std::shared_ptr<ProcessGroup>> flattened_;
};

}  // namespace axle::dist
