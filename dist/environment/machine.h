// Private to dist: the CPUs of this machine.
#pragma once

#include <vector>

namespace axle::dist {

// Returns the CPUs on which this thread may run, one vector for each physical core, ordered by NUMA
// node and number of the first CPU.
std::vector<std::vector<int>> physical_cores();

// Divides the cores into `parts` parts, whose numbers of cores differ by at most 1, and returns the
// CPUs of the part with index `part`. If there are fewer cores than parts, each part is one core,
// and some parts share a core. Without cores, returns an empty vector.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int part, int parts);

}  // namespace axle::dist
