// Waits for conditions, and for states of processes and threads.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <sys/types.h>

namespace axle::tests {

// Waits until the condition is true. Returns false if it is still false after the deadline.
inline bool comes_true(const std::function<bool()>& condition,
                       std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

// Returns the state letter of a process or thread as in proc(5), or '\0' if it does not exist. The
// state of a process is the state of its main thread.
inline char state_of(pid_t task) {
    std::ifstream file("/proc/" + std::to_string(task) + "/stat");
    std::string text;
    std::getline(file, text, '\0');
    const std::size_t name_end = text.rfind(") ");
    return name_end == std::string::npos ? '\0' : text[name_end + 2];
}

// Returns whether a process exists and is not a zombie. The process may be stopped.
inline bool is_running(pid_t pid) {
    const char state = state_of(pid);
    return state != '\0' && state != 'Z';
}

// Returns whether a thread waits in a system call.
inline bool is_blocked(pid_t thread) { return state_of(thread) == 'S'; }

}  // namespace axle::tests
