// Private to dist: the CPUs of this machine.
#pragma once

#include <vector>

namespace axle::dist {

// Returns the CPUs of each core that this process may run on, ordered by NUMA node.
std::vector<std::vector<int>> physical_cores();

// Returns the CPUs of part `part` of `parts`, which are as equal in size as possible.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int part, int parts);

}  // namespace axle::dist
