// Private to dist: whether the members of each group are about to do the same, on the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dist/rendezvous/wire.h"

namespace axle::inline v0::dist {

// "rank 3" or "ranks 1, 3", with "and 97 more" after many.
std::string ranks_text(const std::vector<int>& ranks);

// Ranks are those of the job. Every CommError is the end of the job, and its text says why.
class Agreements {
  public:
    explicit Agreements(int world_size);

    void open(int rank, std::uint32_t group, const std::vector<std::int32_t>& ranks);
    // The answer to all members, if this was the last that it waited for.
    std::optional<Agreement> propose(int rank, const Proposal& proposal);
    // CommError if somebody waits for this rank, which may have said why it leaves.
    void leave(int rank, const std::string& why = {});
    // The same of a rank that is there, until it proposes.
    void stay_away(int rank, const std::string& why);

    const std::vector<int>& members(std::uint32_t group) const;
    // Who has not proposed what others have; nothing if that is over.
    struct Missing {
        Proposal proposal;
        std::vector<int> ranks;
    };
    std::optional<Missing> missing(std::uint32_t group, std::uint64_t sequence) const;

  private:
    struct Round {
        Proposal first;
        std::vector<bool> came;  // by rank of the group
        std::size_t count = 0;
        std::vector<std::int64_t> counts;
    };
    struct Group {
        std::vector<int> ranks;
        std::unordered_map<int, std::size_t> indices;  // of the ranks
        std::vector<std::uint64_t> last;               // sequence that each has proposed
        std::map<std::uint64_t, Round> rounds;
    };

    Group& group_of(int rank, std::uint32_t group);
    void check_same(std::uint32_t id, const Group& group, const Round& round, int rank,
                    const Proposal& proposal) const;
    void check_all_come(std::uint32_t id, const Group& group, const Round& round) const;
    void set_absent(int rank, const char* how, const std::string& why);

    int world_size_;
    std::map<std::uint32_t, Group> groups_;
    struct Absence {
        const char* how;
        std::string why;
    };
    std::map<int, Absence> absent_;  // by rank
};

}  // namespace axle::inline v0::dist
