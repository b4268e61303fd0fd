// Tests that std::bad_alloc in a process group leaves the group usable or ends the job with an
// error on all ranks.
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/allocation/failing_new.h"
#include "tests/dist/ranks.h"

namespace axle::tests {
namespace {

using Group = std::shared_ptr<dist::ProcessGroup>;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// A collective that could not be started was not announced to the other ranks, so it can be called
// again. The first collective of a group also starts a thread.
TEST(OperatorNewFailure, LeavesTheGroupUsableWhenACollectiveStarts) {
    bool is_reached = true;
    for (std::int64_t number = 1; is_reached; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        on_ranks(2, [&](const Group& group) {
            const Tensor x = full({3}, group->rank() + 1.0);
            if (group->rank() == 0) {
                try {
                    const FailingNew failing(number);
                    const dist::Work work = group->all_reduce_async(x);
                    is_reached = failing.has_failed();
                    dist::Work(work).wait();
                } catch (const std::bad_alloc&) {
                    group->all_reduce(x);
                }
            } else {
                group->all_reduce(x);
            }
            EXPECT_THAT(x.to_vector(), ElementsAre(3, 3, 3));
        });
        ASSERT_FALSE(HasFailure());
        if (!is_reached) {
            EXPECT_GT(number, 5);  // a collective needs at least 5 allocations
        }
    }
}

// The control thread allocates memory for the heartbeat that it sends each second.
TEST(OperatorNewFailure, EndsTheJobOnAllRanksIfAControlThreadFails) {
    for (const bool all_later : {false, true}) {
        const std::vector<std::string> errors = run_ranks(2, [&](const Group& group) {
            group->barrier();
            std::optional<FailingNew> failing;
            if (group->rank() == 0) failing.emplace(1, all_later, Threads::control);
            for (;;) group->all_reduce(ones({3}));
        });
        EXPECT_THAT(errors, Each(HasSubstr("the thread that detects failures has failed: out of "
                                           "memory")));
    }
}

}  // namespace
}  // namespace axle::tests
