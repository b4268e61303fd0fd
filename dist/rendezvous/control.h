// Private to dist: the channel that keeps processes together. Rank 0 serves, everybody (rank 0 too)
// holds one connection to it, and a thread of each process keeps that alive.
//
// It carries small messages only: a store of keys, the agreement before each collective, signs of
// life, and the news of a failure. Data moves elsewhere (engine.h).
//
//     hello      nonces and HMACs both ways prove that both know the job's token; then rank, pid,
//                host. Nothing else is read from a connection before that.
//     agreement  every member of a group proposes what it is about to do; when all have, the server
//                answers each with everybody's counts, or tells the whole job how they differ.
//     life       each side sends a heartbeat every second, with the collective that it is in. A
//                connection that ends without a goodbye, or is silent for the heartbeat timeout, is
//                a failure of that rank, told to everybody.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/group/process_group.h"
#include "kernels/dtype.h"

namespace axle::inline v0::dist {

enum class Collective : std::uint8_t {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    all_gather_uneven,
    reduce_scatter,
    all_to_all,
    all_to_all_uneven,
    gather,
    scatter,
    barrier,
    all_gather_object,
    gather_object,
    broadcast_object,
    scatter_object,
    new_group,
};
const char* name_of(Collective op);

// What a member is about to do. All but `counts` must be equal for every member.
struct Proposal {
    std::uint32_t group = 0;     // 0 is everybody; others are handed out by new_group
    std::uint64_t sequence = 0;  // of this group's collectives, from 1
    Collective op = Collective::barrier;
    DType dtype = DType::u8;
    std::int64_t numel = 0;  // 0 where it may differ
    int root = -1;
    ReduceOp reduce_op = ReduceOp::sum;
    bool on_gpu = false;  // data goes from GPU to GPU
    // What the others learn: sizes where they may differ. At most kMaxCounts, as many on each rank.
    std::vector<std::int64_t> counts = {};
};
inline constexpr std::size_t kMaxCounts = 4096;

struct ControlOptions {
    std::chrono::milliseconds timeout{}, join_timeout{}, heartbeat_timeout{};
};

// Several threads may use it at once. After a failure every call throws its CommError.
class Control {
  public:
    // See ProcessGroup::create.
    static std::unique_ptr<Control> join(const Environment& environment,
                                         const ControlOptions& options);
    // Says goodbye, and the parting words; what is heard from then on is no failure of this rank.
    // Rank 0 goes on serving until the others have left too, or for two seconds.
    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    // This machine's address towards rank 0: the interface AXLE_SOCKET_IFNAME (GLOO_SOCKET_IFNAME)
    // if set, else that of the route to the master. What engines bind to.
    virtual const std::string& local_address() const = 0;

    // --- store. Keys of at most 1 KiB, values of at most 16 MiB (ValueError).
    virtual void set(const std::string& key, std::string_view value) = 0;
    // Waits until it is set; CommError after the timeout.
    virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
    // Adds to a number (0 at first) and returns the sum.
    virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

    // --- agreement
    // Tells the server whom a group has. Every member calls it before its first proposal.
    virtual void open_group(std::uint32_t group, const std::vector<int>& ranks) = 0;
    // Does not wait.
    virtual void propose(const Proposal& proposal) = 0;
    // Waits until every member has proposed the same: everybody's counts, by rank of the group.
    // CommError: they differ (thrown everywhere), or somebody did not come within the timeout,
    // which names those, and what they are doing.
    virtual std::vector<std::vector<std::int64_t>> agreed(std::uint32_t group,
                                                          std::uint64_t sequence) = 0;
    // What this process is in, for messages about it and for heartbeats: "all_reduce #12".
    virtual void note(std::string_view activity) = 0;

    // --- failure
    // The text of the first failure that this process has heard of.
    virtual std::optional<std::string> failure() const = 0;
    // Tells everybody: CommError in all of their calls.
    virtual void report(const std::string& text) = 0;
    // Why this process leaves, when it does: for those who then still wait for it.
    virtual void set_parting_words(const std::string&) {}
    // Why this process won't come, should it make no proposal for two seconds: then those throw who
    // wait for it before it makes one. Empty takes it back.
    virtual void set_absence(const std::string&) {}
    // Called once, from a thread of Control's, when a failure is heard: whoever waits elsewhere is
    // to be woken. Called at once if there has been one.
    virtual void on_failure(std::function<void()> wake) = 0;
    // Throws the failure; waits briefly for its cause to arrive if there is none yet, as after an
    // engine's "connection reset" (then throws `otherwise`).
    [[noreturn]] virtual void throw_failure(const std::string& otherwise) = 0;
};

}  // namespace axle::inline v0::dist
