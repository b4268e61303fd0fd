// Tests the host engine. The ranks are threads of one process, or the processes of mpirun.
#include "dist/group/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "dist/group/reduce.h"
#include "kernels/error.h"
#include "kernels/thread.h"
#include "tests/dist/mpi/mpi_engines.h"
#include "tests/dist/ranks.h"
#include "tests/dist/rendezvous/fake_control.h"
#include "tests/wait.h"

namespace axle {
namespace {

using dist::HostEngine;
using dist::ReduceOp;
using std::chrono::milliseconds;

using Rank = std::function<void(HostEngine& engine, int rank)>;

// Runs body(engine, rank) on each rank. Returns the error text of each rank, or "" for a rank
// without an error.
std::vector<std::string> run_ranks(int size, const Rank& body,
                                   milliseconds timeout = milliseconds(20000)) {
    tests::FakeStore store;
    if (tests::MpiWorld* const world = tests::MpiWorld::get()) {
        std::vector<std::string> texts;
        for (const std::exception_ptr& error : world->run(size, [&](int) {
                 const auto engine = tests::open_mpi_engine(world->rank(), size, timeout);
                 body(*engine, world->rank());
             }))
            texts.push_back(tests::text_of(error));
        return texts;
    }
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    threads.reserve(errors.size());
    for (int rank = 0; rank < size; ++rank) {
        threads.push_back(kernels::start_thread("rank", [&, rank] {
            try {
                tests::FakeControl control(store, rank, size);
                const auto engine = dist::open_tcp(control, "test", rank, size, timeout);
                body(*engine, rank);
            } catch (const std::exception& e) {
                errors[static_cast<std::size_t>(rank)] = e.what();
            }
        }));
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Returns deterministic data of a rank. Every rank can compute it.
template <class T>
std::vector<T> numbers(int rank, std::int64_t count) {
    auto state = static_cast<std::uint32_t>(rank * 7919 + count);
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) {
        state = state * 1664525 + 1013904223;  // the generator of Numerical Recipes
        value = static_cast<T>(static_cast<float>(state >> 26) / 4);
    }
    return values;
}

template <class T>
std::vector<T> reduced(int size, std::int64_t count, ReduceOp op) {
    std::vector<T> result = numbers<T>(0, count);
    for (int rank = 1; rank < size; ++rank) {
        const std::vector<T> next = numbers<T>(rank, count);
        const T* other = next.data();
        for (T& value : result) {
            value = op == ReduceOp::sum ? static_cast<T>(value + *other) : std::max(value, *other);
            ++other;
        }
    }
    return result;
}

class HostEngineCollectives : public testing::TestWithParam<int> {};

TEST_P(HostEngineCollectives, AllReduceTensorsOfManySizes) {
    const int size = GetParam();
    expect_no_errors(run_ranks(size, [&](HostEngine& engine, int rank) {
        for (const std::int64_t count : {0, 1, 3, 1000, 40000, 700001, 3000000}) {
            std::vector<float> x = numbers<float>(rank, count);
            engine.all_reduce(x.data(), count, f32, ReduceOp::sum);
            EXPECT_EQ(x, reduced<float>(size, count, ReduceOp::sum)) << count;
        }
        std::vector<std::int64_t> y = numbers<std::int64_t>(rank, 500000);
        engine.all_reduce(y.data(), 500000, i64, ReduceOp::max);
        EXPECT_EQ(y, reduced<std::int64_t>(size, 500000, ReduceOp::max));
    }));
}

TEST_P(HostEngineCollectives, ScatterReducedPartsToRanks) {
    const int size = GetParam();
    expect_no_errors(run_ranks(size, [&](HostEngine& engine, int rank) {
        for (const std::int64_t count : {0, 1, 1000, 600001}) {
            const std::vector<float> x = numbers<float>(rank, count * size);
            std::vector<float> part(static_cast<std::size_t>(count));
            engine.reduce_scatter(part.data(), x.data(), count, f32, ReduceOp::sum);
            const std::vector<float> whole = reduced<float>(size, count * size, ReduceOp::sum);
            EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + count * rank));
        }
    }));
}

TEST_P(HostEngineCollectives, BroadcastFromAnyRoot) {
    const int size = GetParam();
    expect_no_errors(run_ranks(size, [&](HostEngine& engine, int rank) {
        for (int root = 0; root < size; ++root) {
            for (const std::int64_t count : {0, 1, 30000, 1000003}) {
                std::vector<std::uint8_t> x = numbers<std::uint8_t>(rank, count);
                engine.broadcast(x.data(), count, root);
                EXPECT_EQ(x, numbers<std::uint8_t>(root, count));
            }
        }
    }));
}

TEST_P(HostEngineCollectives, GatherAndScatterDifferentSizes) {
    const int size = GetParam();
    std::vector<std::int64_t> counts;
    std::vector<std::uint8_t> all;
    for (int rank = 0; rank < size; ++rank) {
        counts.push_back(rank == 1 ? 0 : 100000 * rank + 5);
        const auto part = numbers<std::uint8_t>(rank, counts.back());
        all.insert(all.end(), part.begin(), part.end());
    }
    expect_no_errors(run_ranks(size, [&](HostEngine& engine, int rank) {
        const auto own = numbers<std::uint8_t>(rank, counts[static_cast<std::size_t>(rank)]);
        std::vector<std::uint8_t> out(all.size());
        engine.all_gather(out.data(), own.data(), counts);
        EXPECT_EQ(out, all);
        for (int root = 0; root < size; ++root) {
            std::vector<std::uint8_t> gathered(all.size());
            engine.gather(gathered.data(), own.data(), counts, root);
            if (rank == root) {
                EXPECT_EQ(gathered, all);
            }
            std::vector<std::uint8_t> part(own.size());
            engine.scatter(part.data(), rank == root ? all.data() : nullptr, counts, root);
            EXPECT_EQ(part, own);
        }
        engine.barrier();
    }));
}

TEST_P(HostEngineCollectives, ExchangePartsBetweenAllRanks) {
    const int size = GetParam();
    const auto piece = [](int from, int to) {
        return std::vector<std::uint8_t>(static_cast<std::size_t>(from * 1000 + to * 77),
                                         static_cast<std::uint8_t>(from * 16 + to));
    };
    expect_no_errors(run_ranks(size, [&](HostEngine& engine, int rank) {
        std::vector<std::uint8_t> in, expected;
        std::vector<std::int64_t> in_bytes, out_bytes;
        for (int other = 0; other < size; ++other) {
            const auto sent = piece(rank, other), received = piece(other, rank);
            in.insert(in.end(), sent.begin(), sent.end());
            expected.insert(expected.end(), received.begin(), received.end());
            in_bytes.push_back(static_cast<std::int64_t>(sent.size()));
            out_bytes.push_back(static_cast<std::int64_t>(received.size()));
        }
        std::vector<std::uint8_t> out(expected.size());
        engine.all_to_all(out.data(), out_bytes, in.data(), in_bytes);
        EXPECT_EQ(out, expected);
    }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostEngineCollectives, testing::Values(2, 3, 4));

TEST(HostEngine, MatchesMessagesByTag) {
    expect_no_errors(run_ranks(2, [&](HostEngine& engine, int rank) {
        int seven = 7, eight = 8;
        if (rank == 0) {
            std::thread first =
                kernels::start_thread("first", [&] { engine.send(&seven, sizeof seven, 1, 7); });
            engine.send(&eight, sizeof eight, 1, 8);
            first.join();
        } else {
            int value = 0;
            engine.recv(&value, sizeof value, 0, 8);
            EXPECT_EQ(value, 8);
            engine.recv(&value, sizeof value, 0, 7);
            EXPECT_EQ(value, 7);
        }
    }));
}

// Rank 1 keeps its engine and makes no call until rank 0 has ended.
TEST(HostEngine, EndsAWaitingCallOnAbortAndRejectsLaterCalls) {
    std::promise<void> ended;
    const auto errors = run_ranks(2, [&](HostEngine& engine, int rank) {
        engine.barrier();
        if (rank == 1) {
            EXPECT_EQ(ended.get_future().wait_for(milliseconds(20000)), std::future_status::ready);
            return;
        }
        std::thread other = kernels::start_thread("aborts", [&, waiting = ::gettid()] {
            EXPECT_TRUE(tests::comes_true([&] { return tests::is_blocked(waiting); }));
            engine.abort();
        });
        std::vector<float> x(1000000);
        std::string error;
        try {
            engine.all_reduce(x.data(), 1000000, f32, ReduceOp::sum);
        } catch (const CommError& e) {
            error = e.what();
        }
        EXPECT_NE(error, "");
        EXPECT_EQ(error.find("timed out"), std::string::npos) << error;
        other.join();
        EXPECT_THROW(engine.barrier(), CommError);
        engine.abort();
        ended.set_value();
    });
    expect_no_errors(errors);
}

TEST(HostEngine, TimesOutIfARankMakesNoCall) {
    std::promise<void> ended;
    const auto errors = run_ranks(
        2,
        [&](HostEngine& engine, int rank) {
            engine.barrier();
            if (rank == 1) {
                EXPECT_EQ(ended.get_future().wait_for(milliseconds(20000)),
                          std::future_status::ready);
                return;
            }
            try {
                engine.barrier();
            } catch (...) {
                ended.set_value();
                throw;
            }
        },
        milliseconds(300));
    EXPECT_NE(errors[0].find("timed out"), std::string::npos) << errors[0];
    EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace axle
