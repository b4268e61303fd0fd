// Implements ProcessGroup's messages, collectives on Trees, and subgroups.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "dist/group/group.h"
#include "dist/group/process_group.h"
#include "dist/group/tree_bytes.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The description of a tensor, sent before the elements of the tensor. The receiver compares it
// with its own tensor.
struct Header {
    std::int64_t dtype = 0, ndim = 0;
    std::array<std::int64_t, kMaxDims> shape = {};

    Header() = default;
    explicit Header(const Tensor& x) : dtype(static_cast<std::int64_t>(x.dtype())), ndim(x.dim()) {
        std::copy(x.shape().begin(), x.shape().end(), shape.begin());
    }
    friend bool operator==(const Header&, const Header&) = default;

    std::string text() const {
        const auto known = static_cast<std::int64_t>(DType::c64);
        if (dtype < 0 || dtype > known || ndim < 0 || ndim > kMaxDims) return "invalid data";
        const auto sizes = std::span<const std::int64_t>(shape);
        return str(static_cast<DType>(dtype), ' ',
                   Shape(sizes.first(static_cast<std::size_t>(ndim))));
    }
};

void check_peer(const char* op, const char* what, int peer, int tag, const ProcessGroup& group) {
    check_rank(op, what, peer, group.size());
    if (peer == group.rank())
        throw ValueError(
            str(op, ": the rank must be another process, but it is this process: ", peer));
    if (tag < 0) throw ValueError(str(op, ": a tag must not be negative: ", tag));
}

// Return the engine's tags for the header and the data of a message. `tag` is the tag of send() or
// recv().
std::uint64_t header_tag(int tag) { return 2 * static_cast<std::uint64_t>(tag); }
std::uint64_t data_tag(int tag) { return header_tag(tag) + 1; }

std::int64_t length_of(const std::string& bytes) { return static_cast<std::int64_t>(bytes.size()); }

Tree tree_in(const std::string& all, std::int64_t begin, std::int64_t length) {
    return from_bytes(std::string_view(all).substr(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(length)));
}

// Returns the number of bytes of each rank, and a buffer of their total size.
std::pair<std::vector<std::int64_t>, std::string> buffer_for(const Counts& counts) {
    std::vector<std::int64_t> lengths;
    std::int64_t sum = 0;
    for (const auto& descriptions : counts) {
        lengths.push_back(descriptions.at(0));
        sum += descriptions[0];
    }
    return {std::move(lengths), std::string(static_cast<std::size_t>(sum), '\0')};
}

std::vector<Tree> trees_in(const std::string& all, const std::vector<std::int64_t>& lengths) {
    std::vector<Tree> trees;
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
        trees.push_back(tree_in(all, begin, length));
        begin += length;
    }
    return trees;
}

constexpr const char* kGroups = "dist/groups";  // the key of the counter for group ids

}  // namespace

Work ProcessGroup::send_async(const Tensor& x, int to, int tag) {
    check_tensor("send", x);
    check_peer("send", "rank", to, tag, *this);
    const Staged from = Staged::with_values(x);
    return impl_->start_message({to, tag, true}, str("send to rank ", to),
                                [&impl = *impl_, from, to, tag] {
                                    const Header header(from.host);
                                    HostEngine& engine = impl.engine();
                                    engine.send(&header, sizeof header, to, header_tag(tag));
                                    if (from.bytes() > 0)
                                        engine.send(from.data(), from.bytes(), to, data_tag(tag));
                                });
}

Work ProcessGroup::recv_async(const Tensor& x, int from, int tag) {
    check_tensor("recv", x);
    check_in_place("recv", x);
    check_peer("recv", "rank", from, tag, *this);
    const Staged to = Staged::to_fill(x);
    return impl_->start_message(
        {from, tag, false}, str("recv from rank ", from),
        [&impl = *impl_, to, from, tag] {
            Header sent;
            const Header expected(to.host);
            HostEngine& engine = impl.engine();
            engine.recv(&sent, sizeof sent, from, header_tag(tag));
            if (sent != expected)
                throw CommError(str("recv: rank ", from, " sends ", sent.text(), ", rank ",
                                    impl.rank, " expects ", expected.text(), ", tag ", tag));
            if (to.bytes() > 0) engine.recv(to.data(), to.bytes(), from, data_tag(tag));
        },
        [to] { to.copy_back(); });
}

std::vector<Tree> ProcessGroup::all_gather_object(const Tree& object) {
    const std::string own = to_bytes("all_gather_object", object);
    if (impl_->alone()) return {from_bytes(own)};
    std::vector<std::int64_t> lengths;
    std::string all;
    impl_
        ->start({.op = Collective::all_gather_object, .counts = {length_of(own)}},
                [&](const Counts& counts) {
                    std::tie(lengths, all) = buffer_for(counts);
                    impl_->engine().all_gather(all.data(), own.data(), lengths);
                })
        .wait();
    return trees_in(all, lengths);
}

std::vector<Tree> ProcessGroup::gather_object(const Tree& object, int root) {
    check_rank("gather_object", "root", root, size());
    const std::string own = to_bytes("gather_object", object);
    if (impl_->alone()) return {from_bytes(own)};
    std::vector<std::int64_t> lengths;
    std::string all;
    impl_
        ->start({.op = Collective::gather_object, .root = root, .counts = {length_of(own)}},
                [&](const Counts& counts) {
                    if (rank() == root) {
                        std::tie(lengths, all) = buffer_for(counts);
                        return impl_->engine().gather(all.data(), own.data(), lengths, root);
                    }
                    std::vector<std::int64_t> needed(counts.size());
                    needed[static_cast<std::size_t>(rank())] = length_of(own);
                    impl_->engine().gather(nullptr, own.data(), needed, root);
                })
        .wait();
    return trees_in(all, lengths);
}

Tree ProcessGroup::broadcast_object(const Tree& object, int root) {
    check_rank("broadcast_object", "root", root, size());
    const bool is_root = rank() == root;
    std::string bytes = is_root ? to_bytes("broadcast_object", object) : std::string();
    if (!impl_->alone()) {
        impl_
            ->start(
                {.op = Collective::broadcast_object, .root = root, .counts = {length_of(bytes)}},
                [&](const Counts& counts) {
                    const std::int64_t length = counts[static_cast<std::size_t>(root)].at(0);
                    bytes.resize(static_cast<std::size_t>(length));
                    impl_->engine().broadcast(bytes.data(), length, root);
                })
            .wait();
    }
    return from_bytes(bytes);
}

Tree ProcessGroup::scatter_object(const std::vector<Tree>& objects, int root) {
    check_rank("scatter_object", "root", root, size());
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size()));
    std::string all;
    if (rank() == root) {
        if (objects.size() != lengths.size())
            throw ValueError(str("scatter_object: expected one object for each of ", size(),
                                 " processes, not ", objects.size()));
        for (std::size_t i = 0; i < objects.size(); ++i) {
            const std::string bytes = to_bytes("scatter_object", objects[i]);
            lengths[i] = length_of(bytes);
            all += bytes;
        }
    }
    if (impl_->alone()) return from_bytes(all);
    std::string own;
    impl_
        ->start({.op = Collective::scatter_object, .root = root, .counts = lengths},
                [&](const Counts& counts) {
                    const auto& descriptions = counts[static_cast<std::size_t>(root)];
                    own.resize(
                        static_cast<std::size_t>(descriptions[static_cast<std::size_t>(rank())]));
                    impl_->engine().scatter(own.data(), all.data(), descriptions, root);
                })
        .wait();
    return from_bytes(own);
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks) {
    if (ranks.empty()) throw ValueError("new_group: the list of ranks is empty");
    for (const int member : ranks) check_rank("new_group", "rank", member, size());
    std::set<int> distinct;
    for (const int member : ranks)
        if (!distinct.insert(member).second)
            throw ValueError(str("new_group: duplicate rank: ", member));
    if (impl_->alone()) return impl_->make_group(ranks, impl_->id);

    CollectiveCall call{.op = Collective::new_group,
                        .numel = static_cast<std::int64_t>(ranks.size())};
    call.counts = {rank() == 0 ? impl_->job->control().add(kGroups, 1) : 0};
    call.counts.insert(call.counts.end(), ranks.begin(), ranks.end());
    std::int64_t number = 0;
    impl_
        ->start(
            std::move(call),
            [&](const Counts& counts) {
                number = counts[0].at(0);
                for (std::size_t i = 0; i < counts.size(); ++i)
                    if (!std::equal(ranks.begin(), ranks.end(), counts[i].begin() + 1,
                                    counts[i].end()))
                        throw CommError(str(
                            "new_group: all processes must pass the same ranks: process ", i,
                            " passes ", Tree(Tree::List(counts[i].begin() + 1, counts[i].end())),
                            ", process ", rank(), " passes ",
                            Tree(Tree::List(ranks.begin(), ranks.end()))));
            })
        .wait();
    return impl_->make_group(ranks, static_cast<std::uint32_t>(number));
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int color) {
    if (impl_->alone()) return impl_->make_group({0}, impl_->id);
    Counts descriptions;
    const std::int64_t last = rank() == 0 ? impl_->job->control().add(kGroups, size()) : 0;
    impl_
        ->start({.op = Collective::new_group, .counts = {last, color}},
                [&](const Counts& counts) { descriptions = counts; })
        .wait();
    std::set<std::int64_t> lower;  // colors less than `color`
    std::vector<int> ranks;
    for (int member = 0; member < size(); ++member) {
        const std::int64_t theirs = descriptions[static_cast<std::size_t>(member)].at(1);
        if (theirs == color) ranks.push_back(member);
        if (theirs < color) lower.insert(theirs);
    }
    const std::int64_t number = descriptions[0].at(0) - static_cast<std::int64_t>(lower.size());
    return impl_->make_group(ranks, static_cast<std::uint32_t>(number));
}

}  // namespace axle::dist
