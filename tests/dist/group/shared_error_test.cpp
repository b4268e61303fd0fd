// Tests errors that occur in one process and are thrown in all processes.
#include "dist/group/shared_error.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include <gtest/gtest.h>

#include "core/linalg.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::outcomes;
using tests::run_ranks;
using tests::text_of;
using Group = std::shared_ptr<dist::ProcessGroup>;

template <class E>
void expect_shared(const E& error, const std::string& expected_text) {
    const auto ends = outcomes(3, [&](const Group& group) {
        try {
            dist::gather_or_throw(*group, "load", [&]() -> Tree {
                if (group->rank() == 1) throw E(error);
                return group->rank();
            });
            ADD_FAILURE() << "nothing was thrown";
        } catch (const E&) {
            group->barrier();  // the group is still usable
            throw;
        }
    });
    EXPECT_EQ(text_of(ends[0]), expected_text);
    EXPECT_EQ(text_of(ends[1]), error.what());
    EXPECT_EQ(text_of(ends[2]), expected_text);
}

TEST(GatherOrThrow, KeepsErrorTypeAndReportsTheProcess) {
    expect_shared(FileError("load: model.safetensors: truncated"),
                  "load: process 1: model.safetensors: truncated");
    expect_shared(ShapeError("matmul: [2, 3] @ [4, 5]"),
                  "load: process 1: matmul: [2, 3] @ [4, 5]");
    expect_shared(UsageError(""), "load: process 1: ");
    expect_shared(CudaError("no kernel"), "load: process 1: no kernel");
    expect_shared(Error("of no special kind"), "load: process 1: of no special kind");
    expect_shared(OutOfMemory("too much", 1, 2, 3, 4), "load: process 1: too much");
}

// Expects that each of these types is thrown on the other process as exactly the same type.
template <class... Errors>
void expect_types_kept() {
    const auto expect_kept = [](const auto& error) {
        const std::exception_ptr thrown = std::make_exception_ptr(error);
        try {
            dist::throw_described(dist::describe_error(thrown), "load", "process 1");
        } catch (const std::exception& received) {
            EXPECT_TRUE(typeid(received) == typeid(error)) << typeid(error).name();
        }
    };
    (expect_kept(Errors("text")), ...);
}

TEST(ThrowDescribed, KeepsTheTypesOfErrorsOfAxle) {
    expect_types_kept<Error, ShapeError, DTypeError, DeviceError, IndexError, ValueError,
                      NumericsError, FileError, CudaError, CommError, UsageError,
                      linalg::LinAlgError>();
    try {
        dist::throw_described(
            dist::describe_error(std::make_exception_ptr(OutOfMemory("text", 1, 2, 3, 4))), "load",
            "process 1");
    } catch (const std::exception& received) {
        EXPECT_TRUE(typeid(received) == typeid(OutOfMemory));
    }
}

TEST(GatherOrThrow, ConvertsStandardExceptionsToErrorOnOtherProcesses) {
    const auto ends = outcomes(2, [&](const Group& group) {
        dist::gather_or_throw(*group, "load", [&]() -> Tree {
            if (group->rank() == 1) throw std::out_of_range("the user's own");
            return {};
        });
    });
    EXPECT_THROW(std::rethrow_exception(ends[0]), Error);
    EXPECT_EQ(text_of(ends[0]), "load: process 1: the user's own");
    EXPECT_THROW(std::rethrow_exception(ends[1]), std::out_of_range);
}

TEST(GatherOrThrow, KeepsTheByteCountsOfOutOfMemory) {
    const auto ends = outcomes(2, [&](const Group& group) {
        dist::gather_or_throw(*group, "load", [&]() -> Tree {
            if (group->rank() == 1) throw OutOfMemory("too much", 1, 2, 3, 4);
            return {};
        });
    });
    try {
        std::rethrow_exception(ends[0]);
    } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.requested, 1);
        EXPECT_EQ(error.in_use, 2);
        EXPECT_EQ(error.cached, 3);
        EXPECT_EQ(error.peak, 4);
    }
}

TEST(GatherOrThrow, ThrowsTheOwnErrorOrTheFirstErrorOfAnotherProcessElseReturnsAllValues) {
    const auto ends = outcomes(3, [&](const Group& group) {
        const auto values =
            dist::gather_or_throw(*group, "load", [&]() -> Tree { return group->rank(); });
        ASSERT_EQ(values.size(), 3u);
        for (int rank = 0; rank < 3; ++rank)
            EXPECT_EQ(values[static_cast<std::size_t>(rank)].integer(), rank);
        dist::gather_or_throw(*group, "load", [&]() -> Tree {
            if (group->rank() > 0) throw ValueError(str("of ", group->rank()));
            return {};
        });
    });
    EXPECT_EQ(text_of(ends[0]), "load: process 1: of 1");
    EXPECT_EQ(text_of(ends[1]), "of 1");
    EXPECT_EQ(text_of(ends[2]), "of 2");
}

TEST(GatherOrThrow, ThrowsCommErrorIfProcessesCallDifferentOps) {
    for (const std::string& end : run_ranks(2, [](const Group& group) {
             dist::gather_or_throw(*group, group->rank() == 0 ? "load" : "save",
                                   [] { return Tree(); });
         }))
        EXPECT_EQ(end,
                  "all ranks must call the same operation: rank 0 calls load, rank 1 calls save");
}

}  // namespace
}  // namespace axle
