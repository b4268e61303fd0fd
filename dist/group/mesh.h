// DeviceMesh: the processes of a group as a grid with named dimensions, for training that is
// parallel in more than one way.
//
//     dist::DeviceMesh mesh(group, {{"dp", 2}, {"tp", 4}});   // of eight processes
//     mesh.get_group("tp")->all_reduce(x);                    // with the three of the same row
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dist/group/process_group.h"

namespace axle::inline v0::dist {

class DeviceMesh {
  public:
    struct Dimension {
        std::string name;
        int size = 1;
    };

    // Ranks go row by row: those of the last dimension are neighbours. Everybody of the group calls
    // it, with the same dimensions (CommError). ValueError where the sizes don't multiply to the
    // size of the group, or a name is empty or comes twice.
    DeviceMesh(std::shared_ptr<ProcessGroup> group, std::vector<Dimension> dimensions);

    const std::vector<Dimension>& dimensions() const { return dimensions_; }
    // Everybody.
    const std::shared_ptr<ProcessGroup>& group() const { return group_; }

    // ValueError for a name that no dimension has.
    int size(const std::string& name) const { return dimensions_[find(name)].size; }
    // Where this process is along a dimension: its rank in get_group(name).
    int coordinate(const std::string& name) const { return coordinates_[find(name)]; }
    const std::vector<int>& coordinates() const { return coordinates_; }

    // Those who differ from this process along this dimension alone.
    std::shared_ptr<ProcessGroup> get_group(const std::string& name) const {
        return groups_[find(name)];
    }
    // Those who differ from it along these dimensions alone, as if they were one, row by row in the
    // order of the mesh. Everybody calls it with the same names, which are of different dimensions.
    std::shared_ptr<ProcessGroup> flatten(const std::vector<std::string>& names) const;

  private:
    std::size_t find(const std::string& name) const;

    std::shared_ptr<ProcessGroup> group_;
    std::vector<Dimension> dimensions_;
    std::vector<int> coordinates_;
    std::vector<std::shared_ptr<ProcessGroup>> groups_;  // by dimension
};

}  // namespace axle::inline v0::dist
