// Private to dist: the server's check that all members of a group make the same collective call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dist/rendezvous/wire.h"

namespace axle::dist {

// Returns "rank 3" or "ranks 1, 3"; long lists are cut off with "and 97 more".
std::string ranks_text(const std::vector<int>& ranks);

// Collects the calls of all ranks and matches them. Ranks are global ranks of the job. A CommError
// thrown here ends the job and becomes its failure text.
class Agreements {
  public:
    explicit Agreements(int world_size);

    void open(int rank, std::uint32_t group, const std::vector<std::int32_t>& ranks);
    // Records a rank's call. Returns the reply for all members if this was the last missing call.
    std::optional<Agreement> announce_call(int rank, const CollectiveCall& call);
    // Records that a rank has left the job, with its reason. Throws CommError if other ranks wait
    // for it.
    void leave(int rank, const std::string& why = {});
    // Records that a connected rank will not make further calls, until it makes one. Throws
    // CommError if other ranks wait for it.
    void mark_missing(int rank, const std::string& why);

    const std::vector<int>& members(std::uint32_t group) const;
    // Returns the ranks that have not made a call which other ranks have made, or nullopt if the
    // call is complete.
    struct Missing {
        CollectiveCall call;
        std::vector<int> ranks;
    };
    std::optional<Missing> missing(std::uint32_t group, std::uint64_t sequence) const;

  private:
    struct Round {
        CollectiveCall first;
        std::vector<bool> called;  // by rank of the group
        std::size_t count = 0;
        std::vector<std::int64_t> counts;
    };
    struct Group {
        std::vector<int> ranks;
        std::unordered_map<int, std::size_t> indices;  // rank of the job to rank in the group
        std::vector<std::uint64_t> last;               // sequence number of each member's last call
        std::map<std::uint64_t, Round> rounds;
    };

    Group& group_of(int rank, std::uint32_t group);
    void check_same(std::uint32_t id, const Group& group, const Round& round, int rank,
                    const CollectiveCall& call) const;
    void check_unavailable(std::uint32_t id, const Group& group, const Round& round) const;
    void set_unavailable(int rank, const char* how, const std::string& why);

    int world_size_;
    std::map<std::uint32_t, Group> groups_;
    struct Unavailable {
        const char* how;
        std::string why;
    };
    std::map<int, Unavailable> unavailable_;  // by rank
};

}  // namespace axle::dist
