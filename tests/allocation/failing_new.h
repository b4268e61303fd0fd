// Makes calls of operator new fail. The test program replaces operator new in failing_new_test.cpp.
#pragma once

#include <cstdint>

namespace axle::tests {

enum class Threads : std::uint8_t {
    all,
    this_one,
    others,
    collectives,  // the threads of process groups that run collectives
    control,      // the threads of process groups that detect failures
};

// Makes calls of operator new throw std::bad_alloc while the object exists. Only one object may
// exist.
class FailingNew {
  public:
    // Call number `first`, counted from 1 on the given threads, fails. If `all_later` is true,
    // later calls fail, too.
    explicit FailingNew(std::int64_t first, bool all_later = false,
                        Threads threads = Threads::this_one);
    ~FailingNew();
    FailingNew(const FailingNew&) = delete;
    FailingNew& operator=(const FailingNew&) = delete;

    bool has_failed() const;  // whether call number `first` was made
};

// Returns the number of blocks that operator new has allocated and operator delete has not freed.
std::int64_t live_blocks();

}  // namespace axle::tests
