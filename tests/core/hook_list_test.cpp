#include "core/hook_list.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace axle {
namespace {

using List = HookList<std::function<int()>>;

TEST(HookList, CallsHooksInOrderUntilTheyAreRemoved) {
    List list;
    const auto remove_first = list.add([] { return 1; });
    list.add([] { return 2; });
    const auto results = [&] {
        std::vector<int> all;
        for (const auto& hook : list.all()) all.push_back(hook());
        return all;
    };
    EXPECT_EQ(results(), (std::vector<int>{1, 2}));
    remove_first();
    remove_first();
    EXPECT_EQ(results(), std::vector<int>{2});
}

TEST(HookList, CanBeDestroyedBeforeHooksAreRemoved) {
    std::function<void()> remove;
    {
        List list;
        remove = list.add([] { return 1; });
    }
    remove();
}

}  // namespace
}  // namespace axle
