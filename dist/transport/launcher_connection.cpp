#include "dist/transport/launcher_connection.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>

#include "dist/environment/environment.h"

namespace axle::dist {
namespace {

// Returns whether the descriptor is a Unix stream socket, like the launcher's socket. The program
// may have closed the socket, and the system may have reused the descriptor for another file.
bool is_channel(int descriptor) {
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return false;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
    return type == SOCK_STREAM && domain == AF_UNIX;
}

}  // namespace

LauncherConnection::LauncherConnection() {
    const auto text = process_variable(kLauncherVariable);
    if (!text) return;
    int descriptor = -1;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, descriptor);
    if (error != std::errc() || stop != end || descriptor < 0 || !is_channel(descriptor)) return;
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    descriptor_ = descriptor;
}

std::vector<ChildEnd> LauncherConnection::read() {
    std::array<char, 4096> bytes{};
    for (;;) {
        const auto count = ::recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count > 0) {
            lines_.add({bytes.data(), static_cast<std::size_t>(count)});
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) descriptor_ = -1;
        break;
    }
    std::vector<ChildEnd> ends;
    for (;;) {
        const auto line = lines_.next();
        if (!line) return ends;
        if (const auto end = read_child_end(*line)) ends.push_back(*end);
    }
}

void LauncherConnection::write(const ReportedFailure& failure) const {
    if (descriptor_ < 0) return;
    const std::string line = to_line(failure);
    [[maybe_unused]] const auto sent =
        ::send(descriptor_, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace axle::dist
