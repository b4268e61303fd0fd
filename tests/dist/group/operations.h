// Helpers for tests of collectives on nested values.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "core/ops.h"
#include "core/tree/tree_utils.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dist/ranks.h"

namespace axle::tests {

inline std::string json_of(const Tree& tree) { return to_json(listify(tree), -1); }

// Expects that f(group) throws an E on every rank, that its text contains all parts, and that the
// group stays usable.
template <class E, class F>
void expect_everywhere(int size, std::initializer_list<const char*> parts, F&& f) {
    on_ranks(size, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        std::string text = "no error";
        try {
            f(*group);
        } catch (const E& error) {
            text = error.what();
        }
        for (const char* part : parts)
            EXPECT_THAT(text, testing::HasSubstr(part)) << "on rank " << group->rank();
        EXPECT_EQ(group->all_gather(full({1}, group->rank(), {f32})).size(0), size);
    });
}

}  // namespace axle::tests
