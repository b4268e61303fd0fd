#include "dist/gloo/module.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>
#include <sched.h>

namespace axle::dist {

namespace transport = gloo::transport;
using std::chrono::milliseconds;

struct GlooMessage {
    GlooMesh* mesh = nullptr;
    std::unique_ptr<transport::UnboundBuffer> buffer;
    bool is_send = false;
};

struct GlooMesh {
    std::shared_ptr<transport::Context> context;
    std::mutex mutex;
    bool aborted = false;
    std::set<GlooMessage*> messages;  // messages in progress
};

namespace {

void say(GlooError* error, const char* text) noexcept {
    const std::size_t length = std::min(std::strlen(text), sizeof error->text - 1);
    std::memcpy(error->text, text, length);
    error->text[length] = '\0';
}

// Returns f(). If f throws, writes the text of the exception to `error` and returns `failed`.
template <class F, class R = std::invoke_result_t<F>>
R guarded(GlooError* error, R failed, F&& f) noexcept {
    try {
        return f();
    } catch (const std::exception& e) {
        say(error, e.what());
    } catch (...) {
        say(error, "an exception of unknown type");
    }
    return failed;
}

// Creates Gloo's thread with the scheduling policy SCHED_BATCH, inherited from this thread. With
// the default policy, Gloo's thread could preempt the thread that has just woken it. If that thread
// holds the lock of a connection (a transport::Pair), Gloo's thread would poll the lock for the
// rest of its time slice.
std::shared_ptr<transport::Device> make_device(const char* address) {
    int policy = 0;
    sched_param parameters{};
    const bool is_usual =
        pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER;
    if (is_usual) pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
    const auto restore = [&](void*) {
        if (is_usual) pthread_setschedparam(pthread_self(), SCHED_OTHER, &parameters);
    };
    const std::unique_ptr<void, decltype(restore)> at_the_end(&policy, restore);
    return transport::tcp::CreateDevice(transport::tcp::attr(address));
}

GlooMesh* open(int rank, int size, const char* address, std::int64_t connect_ms, GlooError* error) {
    return guarded(error, static_cast<GlooMesh*>(nullptr), [&] {
        const auto device = make_device(address);
        auto mesh = std::make_unique<GlooMesh>();
        mesh->context = device->createContext(rank, size);
        // Gloo waits for a connection for five times the timeout, so the timeout is divided by
        // five.
        mesh->context->setTimeout(milliseconds(std::max<std::int64_t>(1, connect_ms / 5)));
        for (int peer = 0; peer < size; ++peer)
            if (peer != rank) mesh->context->createPair(peer);
        return mesh.release();
    });
}

void close(GlooMesh* mesh) { delete mesh; }

std::size_t address(GlooMesh* mesh, int peer, char* bytes, std::size_t capacity, GlooError* error) {
    return guarded(error, std::size_t{0}, [&] {
        const std::vector<char> address = mesh->context->getPair(peer)->address().bytes();
        if (address.size() > capacity)
            throw std::length_error("the address of a connection is too long");
        std::copy(address.begin(), address.end(), bytes);
        return address.size();
    });
}

bool connect(GlooMesh* mesh, int peer, const char* bytes, std::size_t size, GlooError* error) {
    return guarded(error, false, [&] {
        mesh->context->getPair(peer)->connect(std::vector<char>(bytes, bytes + size));
        return true;
    });
}

void drop(GlooMessage* message) {
    {
        const std::lock_guard lock(message->mesh->mutex);
        message->mesh->messages.erase(message);
    }
    delete message;
}

struct Drop {
    void operator()(GlooMessage* message) const { drop(message); }
};

template <class Start>
GlooMessage* start(GlooMesh* mesh, void* data, std::size_t size, bool is_send, GlooError* error,
                   Start&& with) {
    return guarded(error, static_cast<GlooMessage*>(nullptr), [&] {
        std::unique_ptr<GlooMessage, Drop> message(
            new GlooMessage{mesh, mesh->context->createUnboundBuffer(data, size), is_send});
        {
            const std::lock_guard lock(mesh->mutex);
            if (mesh->aborted) throw std::runtime_error("the connections were closed");
            mesh->messages.insert(message.get());
        }
        with(*message->buffer);
        return message.release();
    });
}

GlooMessage* send(GlooMesh* mesh, const void* data, std::size_t size, int to, std::uint64_t slot,
                  GlooError* error) {
    return start(mesh, const_cast<void*>(data), size, true, error,
                 [&](transport::UnboundBuffer& buffer) { buffer.send(to, slot, 0, size); });
}

GlooMessage* receive(GlooMesh* mesh, void* data, std::size_t size, int from, std::uint64_t slot,
                     GlooError* error) {
    return start(mesh, data, size, false, error,
                 [&](transport::UnboundBuffer& buffer) { buffer.recv(from, slot, 0, size); });
}

bool wait(GlooMessage* message, std::int64_t timeout_ms, GlooError* error) {
    return guarded(error, false, [&] {
        const milliseconds timeout(timeout_ms);
        transport::UnboundBuffer& buffer = *message->buffer;
        const bool done = message->is_send ? buffer.waitSend(timeout) : buffer.waitRecv(timeout);
        if (!done) throw std::runtime_error("the connections were closed");
        return true;
    });
}

// Aborts all messages. The loop wakes the threads that wait for messages, because Gloo does not
// wake them if a message was transferred in part. Then a wait fails after 1 ms on purpose: after a
// failed wait, Gloo closes the connections of all pairs of the context.
void abort(GlooMesh* mesh) {
    {
        const std::lock_guard lock(mesh->mutex);
        if (mesh->aborted) return;
        mesh->aborted = true;
        for (GlooMessage* message : mesh->messages) {
            if (message->is_send) {
                message->buffer->abortWaitSend();
            } else {
                message->buffer->abortWaitRecv();
            }
        }
    }
    GlooError ignored;
    guarded(&ignored, false, [&] {
        char nothing = 0;
        return mesh->context->createUnboundBuffer(&nothing, 1)->waitRecv(milliseconds(1));
    });
}

constexpr GlooFunctions kFunctions = {kGlooVersion, open,    close, address, connect,
                                      send,         receive, wait,  drop,    abort};

}  // namespace

extern "C" [[gnu::visibility("default")]] const GlooFunctions* axle_gloo_functions(
    std::uint32_t version) {
    return version == kGlooVersion ? &kFunctions : nullptr;
}

}  // namespace axle::dist
