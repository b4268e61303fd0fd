// Private to the library: the threads that it starts.
#pragma once

#include <functional>
#include <thread>

namespace axle::inline v0::kernels {

// A thread that is a guest in its process. It has a name of its own (15 letters at most) for tools
// that show threads; it inherits the CPUs of the thread that starts it; and it blocks all signals
// but those of a fault (SIGSEGV, SIGFPE, ...), which are its own and would otherwise pass by the
// handlers of the program. `run` throws nothing. std::system_error where the system has no thread.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace axle::inline v0::kernels
