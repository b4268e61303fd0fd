// Fuzzes the data that the server of rank 0 reads from a connection: frames, messages, and the
// state that they change. The first byte of the input selects the kind of sender.
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
    require(std::string_view(encode(message)).substr(5) == frame.body,
            "encoding restores a decoded message");
    return message;
}

void serve_member(Server& server, const Frame& frame) {
    const int rank = static_cast<int>(server.messages++ % 4);
    StoreReply reply;
    switch (frame.kind) {
        case Kind::set: {
            const auto set = parsed<Set>(frame);
            server.store.set(set.key, set.value, reply);
            require(!reply.refused.empty() || *server.store.find(set.key) == set.value,
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
            server.store.add(add.key, add.delta, reply);
            return;
        }
        case Kind::open_group: {
            const auto group = parsed<OpenGroup>(frame);
            return server.agreements.open(rank, group.group, group.ranks);
        }
        case Kind::announce_call:
            server.agreements.announce_call(rank, parsed<AnnounceCall>(frame).call);
            return;
        case Kind::call_timeout: {
            const auto timeout_error = parsed<CallTimeout>(frame);
            server.agreements.missing(timeout_error.group, timeout_error.sequence);
            return;
        }
        case Kind::missing_rank:
            return server.agreements.mark_missing(rank, parsed<MissingRank>(frame).why);
        case Kind::leave:
            parsed<Leave>(frame);
            server.store.leave(rank);
            return server.agreements.leave(rank);
        case Kind::child_end:
            parsed<ChildEndReport>(frame);
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
        case Kind::join_start:
            parsed<JoinStart>(frame);
            return;
        case Kind::join_request:
            parsed<JoinRequest>(frame);
            return;
        case Kind::challenge:
            parsed<Challenge>(frame);
            return;
        case Kind::join_reply:
            parsed<JoinReply>(frame);
            return;
        case Kind::join_refusal:
            parsed<JoinRefusal>(frame);
            return;
        case Kind::leave:
            parsed<Leave>(frame);
            return;
        case Kind::heartbeat:
            parsed<Heartbeat>(frame);
            return;
        case Kind::all_joined:
            parsed<AllJoined>(frame);
            return;
        case Kind::store_reply:
            parsed<StoreReply>(frame);
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
    const auto sender = static_cast<Sender>(static_cast<unsigned>(input[0]) % 3);
    std::string_view bytes = text_of(input.subspan(1));
    Server server;
    FrameReader reader;
    accepts([&] {
        // The bytes arrive in pieces of various sizes, as from a network.
        for (std::size_t size = 1; !bytes.empty(); size = size * 2 + 1) {
            const std::string_view piece = bytes.substr(0, size);
            bytes.remove_prefix(piece.size());
            reader.add(piece);
            for (auto frame = reader.next(sender); frame; frame = reader.next(sender)) {
                if (sender == Sender::member) {
                    serve_member(server, *frame);
                } else {
                    serve_client(*frame);
                }
            }
        }
    });
}

}  // namespace axle::tests
