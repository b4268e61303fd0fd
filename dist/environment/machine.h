// Private to dist: the CPUs of this machine.
#pragma once

#include <vector>

namespace axle::inline v0::dist {

// The CPUs of each core that this process may run on, ordered by NUMA node.
std::vector<std::vector<int>> physical_cores();

// The CPUs of one of so many equal parts, as far as they can be equal.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int part, int parts);

}  // namespace axle::inline v0::dist
