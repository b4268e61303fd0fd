// Forks processes for tests.
#pragma once

#include <sys/types.h>

namespace axle::tests {

// Like fork(), but first ends the workers of the thread pool. A child that is forked while another
// thread allocates memory can inherit a locked allocator: the address sanitizer does not unlock its
// own. Both processes start new workers when they need them. Throws std::runtime_error if other
// threads run, or if the system cannot create a process.
pid_t fork_process();

}  // namespace axle::tests
