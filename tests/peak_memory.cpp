#include "tests/peak_memory.h"

#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fork.h"
#include "tests/sanitized.h"

namespace axle::tests {
namespace {

// Returns the peak of the resident memory of this process in bytes.
std::int64_t resident_peak() {
    std::ifstream status("/proc/self/status");
    std::int64_t kilobytes = 0;
    for (std::string word; status >> word;)
        if (word == "VmHWM:") status >> kilobytes;
    return 1024 * kilobytes;
}

// Calls f in the child process, writes the result to the file descriptor `to`, and exits. The
// result is the growth of the peak memory in bytes, a space, and the message of f's exception, if
// any.
[[noreturn]] void measure(const std::function<void()>& f, int to) {
    std::string message;
    ::malloc_trim(0);  // otherwise reuse of freed memory would hide growth
    std::ofstream("/proc/self/clear_refs") << "5";  // sets the peak to the current memory
    const std::int64_t before = resident_peak();
    try {
        f();
    } catch (const std::exception& error) {
        message = std::string("f has thrown: ") + error.what();
    }
    const std::string result = std::to_string(resident_peak() - before) + ' ' + message;
    const bool done = ::write(to, result.data(), result.size()) == std::ssize(result);
    ::_exit(done ? 0 : 1);
}

}  // namespace

std::int64_t peak_memory(const std::function<void()>& f) {
    if (kSanitized) return f(), 0;
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("peak_memory: can't create a pipe");
    const pid_t child = fork_process();
    if (child == 0) measure(f, ends[1]);
    ::close(ends[1]);
    std::string result;
    char bytes[1024];
    for (ssize_t n = 0; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;)
        result.append(bytes, static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (result.empty()) throw std::runtime_error("peak_memory: the child has ended early");
    const std::size_t space = result.find(' ');
    if (space + 1 < result.size())
        throw std::runtime_error("peak_memory: " + result.substr(space + 1));
    return std::stoll(result);
}

}  // namespace axle::tests
