#include "core/memory/memory.h"

#include <cstdlib>
#include <map>
#include <memory>

#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

using testing::HasSubstr;

// A host allocator that records its blocks.
struct Arena {
    std::map<const void*, std::size_t> blocks;
    int calls = 0;
    bool exhausted = false;
    std::size_t shift = 0;

    HostAllocator allocator() { return {do_allocate, do_deallocate, this}; }

  private:
    static void* do_allocate(std::size_t size, std::size_t alignment, void* context) {
        Arena& arena = *static_cast<Arena*>(context);
        ++arena.calls;
        if (arena.exhausted) return nullptr;
        auto* block = static_cast<std::byte*>(std::aligned_alloc(alignment, size + alignment));
        arena.blocks[block + arena.shift] = size;
        return block + arena.shift;
    }
    static void do_deallocate(void* block, std::size_t size, void* context) noexcept {
        Arena& arena = *static_cast<Arena*>(context);
        const auto found = arena.blocks.find(block);
        if (found == arena.blocks.end() || found->second != size)
            std::abort();  // another allocator has allocated the block
        arena.blocks.erase(found);
        std::free(static_cast<std::byte*>(block) - arena.shift);
    }
};

class HostMemoryAllocator : public testing::Test {
  protected:
    void SetUp() override { host_memory::empty_cache(); }
    void TearDown() override {
        host_memory::set_limit(0);
        host_memory::set_allocator({});
        EXPECT_TRUE(first_.blocks.empty());
        EXPECT_TRUE(second_.blocks.empty());
    }

    Arena first_, second_;
};

TEST_F(HostMemoryAllocator, AllocatesBlocksThatAreReusedUntilTheCacheIsEmptied) {
    host_memory::set_allocator(first_.allocator());
    for (int i = 0; i < 3; ++i) {
        const Tensor x = full({1000}, 2.0);
        EXPECT_EQ(first_.blocks.count(x.data<float>()), 1u);
        EXPECT_EQ((x + x).sum().item(), 4000);
    }
    const int calls = first_.calls;
    EXPECT_EQ(full({1000}, 2.0).sum().item(), 2000);
    EXPECT_EQ(first_.calls, calls);
    EXPECT_FALSE(first_.blocks.empty());
    host_memory::empty_cache();
    EXPECT_TRUE(first_.blocks.empty());
}

TEST_F(HostMemoryAllocator, IsCalledForEachAllocationIfItDoesNotCache) {
    HostAllocator allocator = first_.allocator();
    allocator.caches_blocks = false;
    host_memory::set_allocator(allocator);
    for (int i = 1; i <= 3; ++i) {
        {
            const Tensor x = full({1000}, 2.0);
        }
        EXPECT_EQ(first_.calls, i);
        EXPECT_TRUE(first_.blocks.empty());
    }
    host_memory::set_allocator(first_.allocator());
    { const Tensor x = full({1000}, 2.0); }
    EXPECT_EQ(first_.blocks.size(), 1u);
}

TEST_F(HostMemoryAllocator, ReceivesItsOwnBlocksForDeallocation) {
    auto from_system = std::make_unique<Tensor>(full({500}, 1.0));
    host_memory::set_allocator(first_.allocator());
    auto from_first = std::make_unique<Tensor>(full({500}, 2.0));
    host_memory::set_allocator(second_.allocator());
    const Tensor from_second = full({500}, 3.0);
    // Only from_first is left, because set_allocator() has freed the cached blocks.
    EXPECT_EQ(first_.blocks.size(), 1u);
    EXPECT_EQ((*from_system + *from_first + from_second).sum().item(), 3000);
    from_first.reset();
    EXPECT_TRUE(first_.blocks.empty());
    const std::int64_t reserved = host_memory::stats().reserved;
    from_system.reset();
    EXPECT_LT(host_memory::stats().reserved, reserved);
    host_memory::set_allocator({});
    EXPECT_EQ(second_.blocks.size(), 1u);
    EXPECT_EQ(from_second.sum().item(), 1500);
}

TEST_F(HostMemoryAllocator, CanBeReplacedAndRestored) {
    host_memory::set_allocator(first_.allocator());
    { const Tensor x = full({500}, 1.0); }
    host_memory::set_allocator(second_.allocator());
    EXPECT_TRUE(first_.blocks.empty());
    host_memory::set_allocator(first_.allocator());
    { const Tensor x = full({500}, 1.0); }
    EXPECT_EQ(first_.blocks.size(), 1u);
}

TEST_F(HostMemoryAllocator, FlushesCacheBeforeOutOfMemory) {
    host_memory::set_allocator(first_.allocator());
    { const Tensor x = full({100}, 1.0); }
    first_.exhausted = true;
    { const Tensor from_cache = full({100}, 1.0); }
    EXPECT_THROW(full({100000}, 1.0), OutOfMemory);
    EXPECT_TRUE(first_.blocks.empty());
    first_.exhausted = false;
    EXPECT_EQ(full({100000}, 1.0).sum().item(), 100000);
}

TEST_F(HostMemoryAllocator, RejectsMisalignedBlocks) {
    first_.shift = 16;
    host_memory::set_allocator(first_.allocator());
    try {
        full({100}, 1.0);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("not aligned to 64"));
    }
    EXPECT_TRUE(first_.blocks.empty());
}

TEST_F(HostMemoryAllocator, RequiresAllocateAndDeallocate) {
    HostAllocator half = first_.allocator(), other_half = half;
    half.deallocate = nullptr;
    EXPECT_THROW(host_memory::set_allocator(half), UsageError);
    other_half.allocate = nullptr;
    EXPECT_THROW(host_memory::set_allocator(other_half), UsageError);
    EXPECT_EQ(full({100}, 1.0).sum().item(), 100);
}

TEST_F(HostMemoryAllocator, StaysWithinLimit) {
    const std::int64_t now = host_memory::stats().reserved;
    host_memory::set_limit(now + (1 << 20));
    { const Tensor cached = full({200000}, 1.0); }
    const Tensor x = full({150000}, 1.0);  // empties the cache to stay within the limit
    try {
        full({200000}, 1.0);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.requested, 800000);
        EXPECT_THAT(error.what(), HasSubstr(str("limit ", now + (1 << 20))));
    }
    EXPECT_LE(host_memory::stats().reserved, now + (1 << 20));
    host_memory::set_limit(0);
    EXPECT_EQ(full({200000}, 1.0).sum().item(), 200000);
}

TEST_F(HostMemoryAllocator, ReturnsFreedBlocksToSystemAboveLimitAndRejectsNegativeLimits) {
    const std::int64_t before = host_memory::stats().reserved;
    auto x = std::make_unique<Tensor>(full({200000}, 1.0));
    host_memory::set_limit(1000);
    x.reset();
    EXPECT_LE(host_memory::stats().reserved, before);
    EXPECT_THROW(host_memory::set_limit(-1), ValueError);
}

}  // namespace
}  // namespace axle
