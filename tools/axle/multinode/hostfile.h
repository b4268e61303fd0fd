// Private to tools: hostfiles of DeepSpeed, and the filters that select machines and slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axle::launcher {

inline constexpr std::int64_t kMaxHostfile = std::int64_t{256} << 10;  // bytes

// A machine, and the numbers of the slots (GPUs) that a job uses, in ascending order.
struct HostSlots {
    std::string host;
    std::vector<int> slots;

    bool operator==(const HostSlots&) const = default;
};

// The machines of a job, and the launcher that starts the processes on all machines.
struct MultinodeHosts {
    // "pdsh", "openmpi", "mvapich", "mpich" or "slurm". If empty, the user runs `axle launch` on
    // each machine.
    std::string launcher = {};
    std::string hostfile = {};
    // The selected machines, with equal numbers of slots. May be empty.
    std::vector<HostSlots> hosts = {};
    bool are_filtered = false;
};

// Returns the slots of a machine as a list, such as "0,2".
std::string slot_list(const HostSlots& host);

// Parses a hostfile: a line such as `worker-0 slots=4` for each machine. Empty lines, lines that
// begin with #, and comments after the slots (` # ...`) are ignored. Throws ValueError, with `name`
// and the line, for other lines, machines that are listed twice, numbers of slots that are not from
// 1 to 1024, and files without a machine. Also throws ValueError for names that begin with - or
// have characters other than letters, digits and "._-:".
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name);
// Reads and parses a file. Throws FileError if it cannot be read or has more than kMaxHostfile
// bytes, and the errors of parse_hostfile().
std::vector<HostSlots> read_hostfile(const std::string& path);

// Returns the slots that `inclusion` selects, or all slots except those that `exclusion` selects,
// with their machines in the order of `hosts`. A filter is a list of machines separated by @, such
// as `worker-0@worker-1:0,2`. A machine can be followed by a colon and a list of slots; by default,
// all its slots are selected. At most one of the filters may be given. Throws ValueError if both
// are given, if a filter is malformed or names a machine or slot that does not exist, and if no
// slot is left.
std::vector<HostSlots> filter_hosts(std::vector<HostSlots> hosts, const std::string& inclusion,
                                    const std::string& exclusion);

}  // namespace axle::launcher
