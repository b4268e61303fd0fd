// Tests process groups when processes die. The ranks are forked processes with the default SIGPIPE
// handling.
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/ops.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"
#include "tests/fork.h"
#include "tests/free_port.h"
#include "tests/wait.h"

namespace axle {
namespace {

using Group = std::shared_ptr<dist::ProcessGroup>;
using testing::AllOf;
using testing::HasSubstr;

struct Child {
    pid_t pid = -1;
    int status = -1;        // status from waitpid
    std::string text = {};  // the text of the CommError that ended the child
};

// Child processes that run body(). A child exits with 0, or reports the text of a CommError and
// exits with 3. Children are killed after a minute.
class Children {
  public:
    Children(int size, const std::function<void(const Group&)>& body) {
        const int port = tests::free_port();
        for (int rank = 0; rank < size; ++rank) {
            int ends[2];
            if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot create a pipe");
            const pid_t pid = tests::fork_process();
            if (pid == 0) run(rank, size, port, body, ends[1]);
            ::close(ends[1]);
            children_.push_back({pid});
            outputs_.push_back(ends[0]);
        }
    }

    pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid; }

    // Waits until all ranks have joined.
    void wait_for_the_groups() { wait_for_progress(); }
    // Waits until every rank has called show_progress() once more.
    void wait_for_progress() {
        for (const int output : outputs_) {
            char mark = 0;
            EXPECT_EQ(::read(output, &mark, 1), 1);
        }
    }
    // Reports progress to wait_for_progress() of the test. Ranks call this function.
    static void show_progress() {
        if (::write(output_, "!", 1) != 1) ::_exit(6);
    }

    std::vector<Child> join() {
        for (std::size_t i = 0; i < children_.size(); ++i) {
            char buffer[1000];
            ssize_t length = 0;
            while ((length = ::read(outputs_[i], buffer, sizeof buffer)) > 0)
                children_[i].text.append(buffer, static_cast<std::size_t>(length));
            ::close(outputs_[i]);
            ::waitpid(children_[i].pid, &children_[i].status, 0);
        }
        return children_;
    }

  private:
    [[noreturn]] static void run(int rank, int size, int port,
                                 const std::function<void(const Group&)>& body, int output) {
        ::alarm(60);
        std::signal(SIGPIPE, SIG_DFL);
        int code = 0;
        try {
            const Group group = dist::ProcessGroup::create(tests::environment_of(rank, size, port),
                                                           tests::short_options());
            output_ = output;
            show_progress();
            body(group);
        } catch (const CommError& e) {
            const std::string text = e.what();
            code = ::write(output, text.data(), text.size()) > 0 ? 3 : 4;
        } catch (...) {
            code = 5;
        }
        ::_exit(code);
    }

    static inline int output_ = -1;  // the descriptor to which this rank writes its output
    std::vector<Child> children_;
    std::vector<int> outputs_;
};

// Expects that the child has received the report that another rank died.
void expect_death_report(const Child& child, int dead) {
    EXPECT_TRUE(WIFEXITED(child.status) && WEXITSTATUS(child.status) == 3)
        << "status " << child.status;
    EXPECT_THAT(child.text, AllOf(HasSubstr(str("rank ", dead, " (pid ")), HasSubstr(") died")));
}

// The rank is killed during the first messages or later, in short and in long collectives.
TEST(RankDeath, ThrowsCommErrorOnOtherRanksDuringACollective) {
    for (int time = 0; time < 30; ++time) {
        Children children(2, [time](const Group& group) {
            const Tensor x = ones({std::int64_t{1} << (time % 23)});
            for (int call = 0;; ++call) {
                group->all_reduce(x, dist::ReduceOp::max);
                if (call < 3) Children::show_progress();
            }
        });
        children.wait_for_the_groups();
        for (int call = 0; call < time % 4; ++call) children.wait_for_progress();
        ::kill(children.pid(1), SIGKILL);
        const std::vector<Child> ended = children.join();
        EXPECT_TRUE(WIFSIGNALED(ended[1].status));
        expect_death_report(ended[0], 1);
    }
}

TEST(RankDeath, IsReportedToAllOtherRanks) {
    for (int time = 0; time < 5; ++time) {
        Children children(4, [](const Group& group) {
            const Tensor x = ones({1000000});
            for (int call = 0;; ++call) {
                group->all_reduce(x, dist::ReduceOp::max);
                group->all_gather(x);
                if (call < 4) Children::show_progress();
            }
        });
        children.wait_for_the_groups();
        for (int call = 0; call < time; ++call) children.wait_for_progress();
        ::kill(children.pid(2), SIGKILL);
        const std::vector<Child> ended = children.join();
        for (const int rank : {0, 1, 3})
            expect_death_report(ended[static_cast<std::size_t>(rank)], 2);
    }
}

TEST(RankDeath, IsReportedForRankZero) {
    Children children(3, [](const Group& group) {
        const Tensor x = ones({1000000});
        group->all_reduce(x, dist::ReduceOp::max);
        Children::show_progress();
        for (;;) group->all_reduce(x, dist::ReduceOp::max);
    });
    children.wait_for_the_groups();
    children.wait_for_progress();
    ::kill(children.pid(0), SIGKILL);
    const std::vector<Child> ended = children.join();
    expect_death_report(ended[1], 0);
    expect_death_report(ended[2], 0);
}

TEST(RankDeath, EndsBarriersAndReceivesFromTheDeadRank) {
    Children children(3, [](const Group& group) {
        group->barrier();
        Children::show_progress();
        if (group->rank() == 0) group->recv(ones({3}), 1);
        if (group->rank() == 2) group->barrier();
        for (;;) ::pause();
    });
    children.wait_for_the_groups();
    children.wait_for_progress();
    for (const int rank : {0, 2})
        EXPECT_TRUE(tests::comes_true([&] { return tests::is_blocked(children.pid(rank)); }));
    ::kill(children.pid(1), SIGKILL);
    const std::vector<Child> ended = children.join();
    expect_death_report(ended[0], 1);
    expect_death_report(ended[2], 1);
}

TEST(ProcessGroup, AllowsRanksToLeaveAfterTheLastCollective) {
    Children children(3, [](const Group& group) {
        const Tensor x = ones({100000});
        for (int i = 0; i < 5; ++i) group->all_reduce(x, dist::ReduceOp::mean);
    });
    children.wait_for_the_groups();
    for (const Child& child : children.join()) EXPECT_EQ(child.status, 0) << child.text;
}

}  // namespace
}  // namespace axle
