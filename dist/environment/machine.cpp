#include "dist/environment/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <sched.h>
#include <unistd.h>

#include "dist/launch/launch.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// Returns the CPUs on which a process may run, or an empty vector if they are not known. The
// process id 0 means the calling thread.
std::vector<int> affinity_of(pid_t process) {
    std::vector<int> cpus;
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (::sched_getaffinity(process, sizeof usable, &usable) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
    }
    return cpus;
}

std::vector<int> usable_cpus() {
    std::vector<int> cpus = affinity_of(0);
    for (int cpu = 0; cpus.empty() && cpu < static_cast<int>(std::thread::hardware_concurrency());)
        cpus.push_back(cpu++);
    return cpus;
}

// Returns the NUMA node of a CPU, or 0 if it is not known. `folder` is the CPU's folder in /sys,
// which contains a link to the node.
int node_of(const std::string& folder) {
    constexpr int kMaxNodes = 1024;
    std::error_code ignored;
    for (int node = 0; node < kMaxNodes; ++node) {
        if (std::filesystem::exists(str(folder, "/node", node), ignored)) return node;
        if (!std::filesystem::exists(str("/sys/devices/system/node/node", node), ignored)) break;
    }
    return 0;
}

}  // namespace

// All CPUs of a physical core have the same list of siblings.
std::vector<std::vector<int>> physical_cores() {
    struct Core {
        int node;
        std::vector<int> cpus;
    };
    std::map<std::string, Core> cores;
    for (const int cpu : usable_cpus()) {
        const std::string folder = str("/sys/devices/system/cpu/cpu", cpu);
        std::ifstream file(folder + "/topology/thread_siblings_list");
        std::string siblings;
        if (!std::getline(file, siblings)) siblings = str("cpu ", cpu);
        cores.try_emplace(siblings, Core{node_of(folder), {}}).first->second.cpus.push_back(cpu);
    }
    // The CPUs of each core, by NUMA node and first CPU.
    std::map<std::pair<int, int>, std::vector<int>> ordered;
    for (auto& [siblings, core] : cores) ordered[{core.node, core.cpus[0]}] = std::move(core.cpus);
    std::vector<std::vector<int>> all;
    all.reserve(ordered.size());
    for (auto& [place, cpus] : ordered) all.push_back(std::move(cpus));
    return all;
}

std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int part, int parts) {
    const auto count = static_cast<std::int64_t>(cores.size());
    if (count == 0) return {};
    if (count < parts) return cores[static_cast<std::size_t>(part % count)];
    std::vector<int> cpus;
    for (std::int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
        const auto& core = cores[static_cast<std::size_t>(i)];
        cpus.insert(cpus.end(), core.begin(), core.end());
    }
    return cpus;
}

std::vector<int> cpus_of(const JobNode& place, int local_rank) {
    return share_of(physical_cores(), local_rank, place.local_world_size);
}

bool bind_to_cores(const JobNode& place, int local_rank) {
    if (affinity_of(0) != affinity_of(::getppid())) return false;
    cpu_set_t share;
    CPU_ZERO(&share);
    for (const int cpu : cpus_of(place, local_rank)) CPU_SET(static_cast<std::size_t>(cpu), &share);
    return ::sched_setaffinity(0, sizeof share, &share) == 0;
}

}  // namespace axle::dist
