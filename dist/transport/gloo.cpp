// The Gloo transport, which opens libaxle_gloo.so at run time and connections on first use.
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
#include "kernels/shared_library.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

constexpr const char* kModule = "libaxle_gloo.so";

#ifndef AXLE_LIBRARY_FOLDER
#define AXLE_LIBRARY_FOLDER "lib"
#endif

bool ignores_program_folder = false;

// Returns the folders of this program's installation that may contain the module: the program's
// folder, and the library folders next to it (lib and AXLE_LIBRARY_FOLDER).
std::vector<std::string> folders_beside_program() {
    std::vector<std::string> folders;
    std::error_code none;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
    if (none) return folders;
    const auto prefix = program.parent_path().parent_path();
    folders = {program.parent_path().string(), (prefix / "lib").string()};
    const std::string installed = (prefix / AXLE_LIBRARY_FOLDER).string();
    if (installed != folders.back()) folders.push_back(installed);
    return folders;
}

// Returns the paths that are tried for the module, in order. For kModule, which has no folder, the
// system's loader searches its own folders. The launcher's folder is the last, because its module
// may have another version than the module that the user has chosen or shipped with the program.
std::vector<std::string> module_locations() {
    std::vector<std::string> folders = kernels::library_folders();
    if (!ignores_program_folder)
        for (std::string& folder : folders_beside_program()) folders.push_back(std::move(folder));
    std::vector<std::string> locations;
    for (const std::string& folder : folders) locations.push_back(str(folder, '/', kModule));
    locations.emplace_back(kModule);
    const char* const launcher = std::getenv(kLauncherLibraries);
    if (launcher != nullptr && *launcher != '\0') locations.push_back(str(launcher, '/', kModule));
    return locations;
}

// Opens the module at a path. Returns its functions, or null if there is no module of this version.
// If there is a module of another version, sets `other_version` to true. Throws CommError if the
// file exists but cannot be opened.
const GlooFunctions* open_module_at(const std::string& location, bool& other_version) {
    const auto [library, error] = kernels::open_library(location);
    if (!error.empty()) throw CommError(str("gloo: cannot open the module: ", error));
    if (library == nullptr) return nullptr;
    const auto entry = reinterpret_cast<GlooEntry>(dlsym(library, kGlooEntry));
    const GlooFunctions* const functions = entry == nullptr ? nullptr : entry(kGlooVersion);
    if (functions != nullptr) return functions;
    dlclose(library);
    other_version = true;
    return nullptr;
}

struct Module {
    const GlooFunctions* functions;
    std::string location;
};

Module open_module() {
    std::string searched, outdated;
    for (const std::string& location : module_locations()) {
        bool other_version = false;
        if (const GlooFunctions* const functions = open_module_at(location, other_version))
            return {functions, location};
        if (other_version) outdated += str(outdated.empty() ? "" : ", ", location);
        searched +=
            str(searched.empty() ? "" : ", ", location == kModule ? "the loader's path" : location);
    }
    if (!outdated.empty())
        throw CommError(str("gloo: built for another version of Axle: ", outdated,
                            "; install the module of this version"));
    throw CommError(str("gloo: ", kModule, " was not found in ", searched,
                        "; set AXLE_LIBRARY_PATH to its folder"));
}

// Returns the module, which is opened once and never closed. If opening it fails, the next call
// tries again.
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

// The maximum size of an address in bytes. Each rank stores a list with one entry per rank: the
// length of an address in one byte, and the address. The entry of the rank itself has length 0.
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
                str("gloo: cannot listen at ", control.local_address(), ": ", error.text));
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
        return make_message(
            module().send(mesh_, data, static_cast<std::size_t>(bytes), to, slot, &error), to,
            error);
    }
    std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                     std::uint64_t slot) override {
        connect(from);
        GlooError error{};
        return make_message(
            module().receive(mesh_, data, static_cast<std::size_t>(bytes), from, slot, &error),
            from, error);
    }
    // Connects to the other ranks in ascending order, which can't deadlock. If rank a waits for
    // rank b, and rank b waits for rank c, then c < a, because b connects in ascending order too.
    // So ranks can't wait for each other in a cycle.
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

    class GlooMessageHandle final : public Message {
      public:
        GlooMessageHandle(GlooMessage* message, int peer, milliseconds timeout)
            : message_(message), peer_(peer), timeout_(timeout) {}
        ~GlooMessageHandle() override { module().drop(message_); }
        GlooMessageHandle(const GlooMessageHandle&) = delete;
        GlooMessageHandle& operator=(const GlooMessageHandle&) = delete;
        void wait() override {
            GlooError error{};
            if (!module().wait(message_, timeout_.count(), &error)) fail(peer_, error);
        }

      private:
        GlooMessage* message_;
        int peer_;
        milliseconds timeout_;
    };

    // Throws the error as CommError, without the prefix "[file:line] " of Gloo's error texts.
    [[noreturn]] static void fail(int peer, const GlooError& error) {
        std::string_view text = error.text;
        if (text.starts_with('[') && text.find("] ") != std::string_view::npos)
            text.remove_prefix(text.find("] ") + 2);
        throw CommError(str("gloo: connection to rank ", peer, " failed: ", text));
    }
    std::unique_ptr<Message> make_message(GlooMessage* message, int peer,
                                          const GlooError& error) const {
        if (message == nullptr) fail(peer, error);
        return std::make_unique<GlooMessageHandle>(message, peer, timeout_);
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

    // Returns the address for this rank from the addresses that `peer` has stored.
    std::string_view own_address(std::string_view published, int peer) const {
        for (int rank = 0; !published.empty(); ++rank) {
            const auto length = static_cast<unsigned char>(published.front());
            published.remove_prefix(1);
            if (published.size() < length) break;
            if (rank == rank_) return published.substr(0, length);
            published.remove_prefix(length);
        }
        throw CommError(str("gloo: rank ", peer, " published invalid addresses"));
    }

    // Connects to a peer. Does nothing if the connection exists already.
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
    bool all_connected_ = false;  // used only by the group's worker thread
};

}  // namespace

void ignore_program_folder() { ignores_program_folder = true; }

std::string installed_gloo_folder() {
    std::error_code ignored;
    for (const std::string& folder : folders_beside_program())
        if (std::filesystem::exists(str(folder, '/', kModule), ignored)) return folder;
    return "";
}

std::string find_gloo() {
    try {
        return opened_module().location;
    } catch (const CommError& error) {
        return str("not found: ", error.what());
    }
}

std::unique_ptr<HostEngine> open_gloo(Control& control, const std::string& name, int rank, int size,
                                      milliseconds timeout) {
    return make_collectives(std::make_unique<Gloo>(control, name, rank, size, timeout));
}

}  // namespace axle::dist
