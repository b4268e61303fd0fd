// Gloo as a Transport: its module opened at run time, and connections made when they are needed.
#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <signal.h>

#include "dist/gloo/module.h"
#include "dist/group/backends.h"
#include "dist/group/collectives.h"
#include "dist/group/engine.h"
#include "dist/rendezvous/control.h"
#include "dist/transport/transport.h"
#include "kernels/error.h"

namespace axle::inline v0::dist {
namespace {

using std::chrono::milliseconds;

constexpr const char* kModule = "libaxle_gloo.so";

// Where the module may lie, the likeliest first; a bare name is for the loader to look for.
std::vector<std::string> module_places() {
    std::vector<std::string> places;
    const char* const listed = std::getenv("AXLE_LIBRARY_PATH");
    std::string_view rest = listed == nullptr ? "" : listed;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        if (end > 0) places.push_back(str(rest.substr(0, end), '/', kModule));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    std::error_code none;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
    if (!none) {
        places.push_back((program.parent_path() / kModule).string());
        places.push_back((program.parent_path().parent_path() / "lib" / kModule).string());
    }
    places.emplace_back(kModule);
    return places;
}

// The module in one place, or null where there is none.
const GlooFunctions* open_module_at(const std::string& place) {
    std::error_code ignored;
    const bool is_path = place != kModule;
    if (is_path && !std::filesystem::exists(place, ignored)) return nullptr;
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const why = dlerror();
        if (!is_path) return nullptr;
        throw CommError(str("gloo: can't be opened: ", why == nullptr ? place.c_str() : why));
    }
    const auto entry = reinterpret_cast<GlooEntry>(dlsym(library, kGlooEntry));
    const GlooFunctions* const functions = entry == nullptr ? nullptr : entry(kGlooVersion);
    if (functions != nullptr) return functions;
    dlclose(library);
    throw CommError(str("gloo: ", place, " belongs to another version of Axle"));
}

struct Module {
    const GlooFunctions* functions;
    std::string place;
};

Module open_module() {
    std::string looked;
    for (const std::string& place : module_places()) {
        if (const GlooFunctions* const functions = open_module_at(place)) return {functions, place};
        looked += str(looked.empty() ? "" : ", ", place == kModule ? "the loader's path" : place);
    }
    throw CommError(str("gloo: ", kModule, " was not found: looked in ", looked,
                        "; set AXLE_LIBRARY_PATH to its folder"));
}

// The module, opened once and never closed. A failure may be tried again.
const Module& opened_module() {
    static const Module module = open_module();
    return module;
}
const GlooFunctions& module() { return *opened_module().functions; }

[[maybe_unused]] bool blocks_sigpipe() {
    sigset_t blocked;
    return pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 &&
           sigismember(&blocked, SIGPIPE) == 1;
}

// What ranks publish in the store: for each other rank the address for it, its length first.
constexpr std::size_t kLongestAddress = 255;

class Gloo final : public Transport {
  public:
    Gloo(Control& control, const std::string& name, int rank, int size, milliseconds timeout)
        : control_(control),
          name_(name),
          rank_(rank),
          size_(size),
          timeout_(timeout),
          peers_(static_cast<std::size_t>(size)) {
        assert(blocks_sigpipe());
        GlooError error{};
        mesh_ = module().open(rank, size, control.local_address().c_str(), timeout.count(), &error);
        if (mesh_ == nullptr)
            throw CommError(
                str("gloo: can't listen at ", control.local_address(), ": ", error.text));
        try {
            control_.set(key(rank_), addresses());
        } catch (...) {
            module().close(mesh_);
            throw;
        }
    }
    ~Gloo() override { module().close(mesh_); }
    Gloo(const Gloo&) = delete;
    Gloo& operator=(const Gloo&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    std::unique_ptr<Message> send(const void* data, std::int64_t bytes, int to,
                                  std::uint64_t slot) override {
        connect(to);
        GlooError error{};
        return started(
            module().send(mesh_, data, static_cast<std::size_t>(bytes), to, slot, &error), to,
            error);
    }
    std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                     std::uint64_t slot) override {
        connect(from);
        GlooError error{};
        return started(
            module().receive(mesh_, data, static_cast<std::size_t>(bytes), from, slot, &error),
            from, error);
    }
    // Who waits for `peer` has the lower ones behind it, so of two that wait one after the other
    // the second waits for a rank lower than the first: there is no circle.
    void connect_all() override {
        if (all_connected_) return;
        for (int peer = 0; peer < size_; ++peer)
            if (peer != rank_) connect(peer);
        all_connected_ = true;
    }
    void abort() noexcept override { module().abort(mesh_); }

  private:
    struct Peer {
        std::mutex mutex;
        std::atomic<bool> connected = false;
    };

    class UnderWay final : public Message {
      public:
        UnderWay(GlooMessage* message, int peer, milliseconds timeout)
            : message_(message), peer_(peer), timeout_(timeout) {}
        ~UnderWay() override { module().drop(message_); }
        UnderWay(const UnderWay&) = delete;
        UnderWay& operator=(const UnderWay&) = delete;
        void wait() override {
            GlooError error{};
            if (!module().wait(message_, timeout_.count(), &error)) fail(peer_, error);
        }

      private:
        GlooMessage* message_;
        int peer_;
        milliseconds timeout_;
    };

    // Gloo's texts begin with "[file:line] ".
    [[noreturn]] static void fail(int peer, const GlooError& error) {
        std::string_view text = error.text;
        if (text.starts_with('[') && text.find("] ") != std::string_view::npos)
            text.remove_prefix(text.find("] ") + 2);
        throw CommError(str("gloo: rank ", peer, ": ", text));
    }
    std::unique_ptr<Message> started(GlooMessage* message, int peer, const GlooError& error) const {
        if (message == nullptr) fail(peer, error);
        return std::make_unique<UnderWay>(message, peer, timeout_);
    }

    std::string key(int rank) const { return str("gloo/", name_, '/', rank); }

    std::string addresses() const {
        std::string all;
        for (int peer = 0; peer < size_; ++peer) {
            std::array<char, kLongestAddress> bytes;
            GlooError error{};
            const std::size_t length =
                peer == rank_ ? 0
                              : module().address(mesh_, peer, bytes.data(), bytes.size(), &error);
            if (length == 0 && peer != rank_) fail(peer, error);
            all.push_back(static_cast<char>(length));
            all.append(bytes.data(), length);
        }
        return all;
    }

    // This rank's address in what a peer has published.
    std::string_view own_address(std::string_view published, int peer) const {
        for (int rank = 0; !published.empty(); ++rank) {
            const auto length = static_cast<unsigned char>(published.front());
            published.remove_prefix(1);
            if (published.size() < length) break;
            if (rank == rank_) return published.substr(0, length);
            published.remove_prefix(length);
        }
        throw CommError(str("gloo: rank ", peer, " published addresses that make no sense"));
    }

    // Two ranks connect at the first message between them.
    void connect(int peer) {
        Peer& to = peers_[static_cast<std::size_t>(peer)];
        if (to.connected) return;
        const std::lock_guard lock(to.mutex);
        if (to.connected) return;
        const std::string published = control_.get(key(peer), timeout_);
        const std::string_view address = own_address(published, peer);
        GlooError error{};
        if (!module().connect(mesh_, peer, address.data(), address.size(), &error))
            fail(peer, error);
        to.connected = true;
    }

    Control& control_;
    const std::string name_;
    const int rank_, size_;
    const milliseconds timeout_;
    GlooMesh* mesh_ = nullptr;
    std::vector<Peer> peers_;
    bool all_connected_ = false;  // as the group's worker knows
};

}  // namespace

std::string find_gloo() {
    try {
        return opened_module().place;
    } catch (const CommError& error) {
        return str("not found: ", error.what());
    }
}

std::unique_ptr<HostEngine> open_gloo(Control& control, const std::string& name, int rank, int size,
                                      milliseconds timeout) {
    return make_collectives(std::make_unique<Gloo>(control, name, rank, size, timeout));
}

}  // namespace axle::inline v0::dist
