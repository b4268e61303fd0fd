// Private to the library: starts the library's background threads.
#pragma once

#include <functional>
#include <thread>

namespace axle::kernels {

// Starts a background thread that calls `run` and returns the thread. Tools that list threads show
// `name` (a string literal of at most 15 characters). The thread inherits the CPU affinity of its
// creator. The thread blocks all signals except the signals of faults (SIGSEGV, SIGFPE, ...), so
// that the program's signal handlers do not run on it. `run` must not throw. Throws
// std::system_error if the system cannot create a thread.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace axle::kernels
