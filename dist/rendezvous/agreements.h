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
#include "kernels/error.h"

namespace axle::dist {

// Returns text such as "rank 3" or "ranks 1, 3"; long lists end with text such as "and 97 more".
std::string ranks_text(const std::vector<int>& ranks);

// An error of a collective call. It is reported as the failure of the job. `rank` is the rank that
// has caused it, or -1 if the calls of several ranks differ.
struct AgreementError : CommError {
    AgreementError(int rank_, const std::string& text) : CommError(text), rank(rank_) {}
    int rank;
};

// Collects the collective calls of all ranks and matches them. Ranks are ranks of the job.
class Agreements {
  public:
    explicit Agreements(int world_size);

    // Records the members of a group. Throws AgreementError if another rank has recorded other
    // members, if `ranks` are not different ranks of the job, or if the job has too many groups.
    void open(int rank, std::uint32_t group, const std::vector<std::int32_t>& ranks);
    // Records a rank's call. If all members of the group have made the call, returns the reply for
    // them, otherwise nullopt. Throws AgreementError if the call differs from the call of another
    // member, is invalid, or needs a rank that has left or is missing.
    std::optional<Agreement> announce_call(int rank, const CollectiveCall& call);
    // Records that a rank has left the job, with its reason. Throws AgreementError if other ranks
    // wait for this rank.
    void leave(int rank, const std::string& why = {});
    // Records that a connected rank will not make another call. If the rank makes a call, the
    // record is removed. Throws AgreementError if other ranks wait for this rank.
    void mark_missing(int rank, const std::string& why);

    // Returns the members of a group, which must have been recorded.
    const std::vector<int>& members(std::uint32_t group) const;
    // A call that some ranks have made, and the ranks that have not made it.
    struct Missing {
        CollectiveCall call;
        std::vector<int> ranks;
    };
    // Returns the call with this sequence number and the ranks that have not made it. Returns
    // nullopt if all members or no members have made the call.
    std::optional<Missing> missing(std::uint32_t group, std::uint64_t sequence) const;

  private:
    struct Round {
        CollectiveCall first;
        std::vector<bool> called;  // whether each rank of the group has made the call
        std::size_t count = 0;
        std::vector<std::int64_t> counts;
    };
    struct Group {
        std::vector<int> ranks;
        std::unordered_map<int, std::size_t> indices;  // ranks in the group, by rank of the job
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
    std::map<int, Unavailable> unavailable_;  // ranks that have left or are missing
};

}  // namespace axle::dist
