// What the server of rank 0 reads from a connection: frames, messages, and what members make it
// remember. The first byte of the input says who speaks.
#include "dist/rendezvous/agreements.h"
#include "dist/rendezvous/key_store.h"
#include "dist/rendezvous/wire.h"
#include "kernels/error.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

using namespace dist;  // NOLINT(google-build-using-namespace)

struct Server {
    KeyStore store;
    Agreements agreements{4};
    std::uint64_t messages = 0;
};

template <class Message>
Message parsed(const Frame& frame) {
    const auto message = decode<Message>(frame.body);
    require(std::string_view(encode(message)).substr(5) == frame.body, "a message comes back");
    return message;
}

void serve_member(Server& server, const Frame& frame) {
    const int rank = static_cast<int>(server.messages++ % 4);
    Done done;
    switch (frame.kind) {
        case Kind::set: {
            const auto set = parsed<Set>(frame);
            server.store.set(set.key, set.value, done);
            require(!done.refused.empty() || *server.store.find(set.key) == set.value,
                    "a key has the value that was set");
            return;
        }
        case Kind::get: {
            const auto get = parsed<Get>(frame);
            if (server.store.find(get.key) == nullptr) server.store.wait(get.key, {rank, get.id});
            return;
        }
        case Kind::cancel:
            return server.store.cancel({rank, parsed<Cancel>(frame).id});
        case Kind::add: {
            const auto add = parsed<Add>(frame);
            server.store.add(add.key, add.delta, done);
            return;
        }
        case Kind::open_group: {
            const auto group = parsed<OpenGroup>(frame);
            return server.agreements.open(rank, group.group, group.ranks);
        }
        case Kind::propose:
            server.agreements.propose(rank, parsed<Propose>(frame).proposal);
            return;
        case Kind::overdue: {
            const auto overdue = parsed<Overdue>(frame);
            server.agreements.missing(overdue.group, overdue.sequence);
            return;
        }
        case Kind::absent:
            return server.agreements.stay_away(rank, parsed<Absent>(frame).why);
        case Kind::goodbye:
            parsed<Goodbye>(frame);
            server.store.leave(rank);
            return server.agreements.leave(rank);
        case Kind::child_end:
            parsed<ChildEnded>(frame);
            return;
        case Kind::report:
            parsed<Report>(frame);
            return;
        default:
            parsed<Heartbeat>(frame);
    }
}

void serve_client(const Frame& frame) {
    switch (frame.kind) {
        case Kind::hello:
            parsed<Hello>(frame);
            return;
        case Kind::identity:
            parsed<Identity>(frame);
            return;
        case Kind::challenge:
            parsed<Challenge>(frame);
            return;
        case Kind::welcome:
            parsed<Welcome>(frame);
            return;
        case Kind::refusal:
            parsed<Refusal>(frame);
            return;
        case Kind::goodbye:
            parsed<Goodbye>(frame);
            return;
        case Kind::heartbeat:
            parsed<Heartbeat>(frame);
            return;
        case Kind::joined:
            parsed<Joined>(frame);
            return;
        case Kind::done:
            parsed<Done>(frame);
            return;
        case Kind::value:
            parsed<Value>(frame);
            return;
        case Kind::agreement:
            parsed<Agreement>(frame);
            return;
        default:
            parsed<Failure>(frame);
    }
}

}  // namespace

void fuzz(Bytes input) {
    if (input.empty()) return;
    const auto speaker = static_cast<Speaker>(static_cast<unsigned>(input[0]) % 3);
    std::string_view bytes = text_of(input.subspan(1));
    Server server;
    FrameReader reader;
    takes([&] {
        // In pieces, as a network brings them.
        for (std::size_t size = 1; !bytes.empty(); size = size * 2 + 1) {
            const std::string_view piece = bytes.substr(0, size);
            bytes.remove_prefix(piece.size());
            reader.add(piece);
            for (auto frame = reader.next(speaker); frame; frame = reader.next(speaker)) {
                if (speaker == Speaker::member) {
                    serve_member(server, *frame);
                } else {
                    serve_client(*frame);
                }
            }
        }
    });
}

}  // namespace axle::tests
