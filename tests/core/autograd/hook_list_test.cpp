#include "core/autograd/hook_list.h"

#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace axle {
namespace {

using List = HookList<std::function<int()>>;

TEST(HookList, ReturnsHooksInOrderUntilTheyAreRemoved) {
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
    const auto token = std::make_shared<int>(1);
    {
        List list;
        remove = list.add([token] { return *token; });
        EXPECT_EQ(token.use_count(), 2);
    }
    EXPECT_EQ(token.use_count(), 1);  // the function `remove` does not keep the hook alive
    List other;
    other.add([] { return 2; });
    EXPECT_NO_THROW(remove());
    ASSERT_EQ(other.all().size(), 1u);
    EXPECT_EQ(other.all()[0](), 2);
}

}  // namespace
}  // namespace axle
