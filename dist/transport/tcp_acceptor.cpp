#include "dist/transport/tcp_acceptor.h"

#include <cstddef>
#include <exception>
#include <utility>

#include <poll.h>

#include "kernels/thread.h"

namespace axle::dist {

TcpAcceptor::TcpAcceptor(const Address& address, const Key& key, int rank, int size,
                         Connected connected)
    : connected_(std::move(connected)),
      stop_event_(make_event()),
      missing_(size - rank - 1),
      has_connected_(static_cast<std::size_t>(size)) {
    Socket listener = listen_at(address);
    port_ = port_of(own_address(listener));
    handshakes_.emplace(std::move(listener), key, rank, size,
                        [this](int client, Socket socket) { connect(client, std::move(socket)); });
    thread_ = kernels::start_thread("axle-accept", [this] { run(); });
}

TcpAcceptor::~TcpAcceptor() {
    stop();
    thread_.join();
}

void TcpAcceptor::run() noexcept {
    while (!is_stopped_ && missing_ > 0) {
        try {
            poll_once();
        } catch (const std::exception&) {  // out of memory: closes connections and continues
            handshakes_->clear();
        }
    }
    handshakes_.reset();
}

void TcpAcceptor::poll_once() {
    std::vector<pollfd> waited{{stop_event_.descriptor(), POLLIN, 0}};
    handshakes_->add_poll_entries(waited);
    const TimePoint wake = handshakes_->next_timer();
    const int timeout = wake == TimePoint::max() ? -1 : milliseconds_until(wake);
    if (::poll(waited.data(), waited.size(), timeout) < 0) return;
    is_stopped_ = waited[0].revents != 0;
    if (!is_stopped_) handshakes_->proceed();
}

void TcpAcceptor::connect(int rank, Socket socket) {
    if (has_connected_[static_cast<std::size_t>(rank)]) return;
    connected_(rank, std::move(socket));
    has_connected_[static_cast<std::size_t>(rank)] = true;
    --missing_;
}

}  // namespace axle::dist
