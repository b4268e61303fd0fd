#include "core/autograd/leaf_registry.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

using Positions = std::vector<std::ptrdiff_t>;

Tensor leaf() { return zeros({2}, {.requires_grad = true}); }

// Returns the byte positions in the object at which a leaf is found.
template <class T>
Positions found_in(const T& object) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&object);
    Positions positions;
    for (const auto& found : autograd::find_leaves(begin, begin + sizeof(T)))
        positions.push_back(found.place - begin);
    return positions;
}

TEST(LeafRegistry, FindsOnlyLeavesThatRequireAGradient) {
    const Tensor x = leaf();
    std::array<Tensor, 6> tensors = {zeros({2}), x, x * 2, x.detach(), x.clone(), Tensor()};
    constexpr std::ptrdiff_t kSize = sizeof(Tensor);
    EXPECT_EQ(found_in(tensors), Positions{kSize});
    tensors[0].set_requires_grad();
    EXPECT_EQ(found_in(tensors), (Positions{0, kSize}));
    tensors[1].set_requires_grad(false);  // also changes x
    EXPECT_EQ(found_in(tensors), Positions{0});
    tensors[1].set_requires_grad(true);
    std::swap(tensors[1], tensors[5]);
    EXPECT_EQ(found_in(tensors), (Positions{0, 5 * kSize}));
    const std::array<const Impl*, 2> pointers = {x.impl().get(), x.impl().get()};
    EXPECT_EQ(found_in(pointers), Positions{});
}

TEST(LeafRegistry, DoesNotFindDestroyedTensors) {
    const Tensor x = leaf();
    std::optional<Tensor> handle = x;
    EXPECT_EQ(found_in(handle), Positions{0});
    handle.reset();
    EXPECT_EQ(found_in(handle), Positions{});
    handle = leaf();
    handle.reset();  // destroys the leaf
    EXPECT_EQ(found_in(handle), Positions{});
    EXPECT_EQ(found_in(x), Positions{0});
}

TEST(LeafRegistry, SearchesWhileAnotherThreadDestroysLeaves) {
    std::array<Tensor, 2> kept = {leaf(), Tensor()};
    std::atomic<bool> stops = false;
    std::thread other([&] {
        while (!stops) {
            const Tensor x = leaf();
            Tensor y = leaf();
            y.set_requires_grad(false);
        }
    });
    for (int i = 0; i < 1000; ++i) {
        kept[1] = leaf();
        EXPECT_EQ(found_in(kept).size(), 2U);
    }
    stops = true;
    other.join();
}

}  // namespace
}  // namespace axle
