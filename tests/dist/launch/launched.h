// Helpers for tests of launchers: they run a launcher in a child process and inspect processes.
#pragma once

#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "tests/fork.h"
#include "tests/temporary_folder.h"
#include "tests/wait.h"

namespace axle::tests {

inline std::vector<std::string> lines_in(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line) && !file.eof();) lines.push_back(line);
    return lines;
}

// Waits for a file with a complete line and returns the number in it, or -1 after a timeout.
inline pid_t wait_for_pid(const std::string& path) {
    comes_true([&] { return !lines_in(path).empty(); });
    const auto lines = lines_in(path);
    return lines.empty() ? -1 : static_cast<pid_t>(std::stol(lines[0]));
}

// Closes the descriptors that exec() closes. Otherwise descriptors of a child can have two digits,
// and /bin/sh does not accept these in redirections.
inline void close_private_descriptors() {
    for (int fd = STDERR_FILENO + 1; fd < 4096; ++fd) {
        const int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC) != 0) close(fd);
    }
}

inline constexpr int kThrew = 99;  // the exit code of a process whose function has thrown

// Runs f in a child process, which exits with the result of f. If f throws, the child prints the
// exception's text and exits with kThrew. Redirects the child's streams to `folder`/out and
// `folder`/err.
inline pid_t start_process(const std::string& folder, const std::function<int()>& f) {
    const std::string out = folder + "/out", err = folder + "/err";
    const pid_t child = fork_process();
    if (child != 0) return child;
    close_private_descriptors();
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
    int code = kThrew;
    try {
        code = f();
    } catch (const std::exception& error) {
        dprintf(STDERR_FILENO, "%s\n", error.what());
    }
    _exit(code);
}

// Waits for a child process. Returns its exit code, or minus the signal that ended it.
inline int wait_for_process(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace axle::tests
