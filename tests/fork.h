// Forks processes for tests.
#pragma once

#include <sys/types.h>

namespace axle::tests {

// Ends the workers of the thread pool and calls fork(). Otherwise, a child that is forked while
// another thread allocates memory could inherit a locked allocator. Parent and child start new
// workers when they need them. The child does not ignore SIGINT and SIGQUIT, although a program
// that a shell has started in the background ignores them. Throws std::runtime_error if other
// threads run, or if the system cannot create a process.
pid_t fork_process();

}  // namespace axle::tests
