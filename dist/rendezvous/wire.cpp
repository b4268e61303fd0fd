#include "dist/rendezvous/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/error.h"

namespace axle::dist {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kHeader = 5;
using Length = std::uint32_t;

[[noreturn]] void fail(const std::string& what) {
    throw CommError(str("rendezvous: invalid message: ", what));
}

class Writer {
  public:
    explicit Writer(std::string& out) : out_(out) {}

    template <class T>
    void operator()(const T& value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    template <class Enum>
        requires std::is_enum_v<Enum>
    void operator()(Enum value, Enum) {
        (*this)(value);
    }
    void operator()(const std::string& text, std::size_t most) {
        const std::size_t size = std::min(text.size(), most);
        (*this)(static_cast<Length>(size));
        out_.append(text, 0, size);
    }
    template <class T>
    void operator()(const std::vector<T>& values, std::size_t) {
        (*this)(static_cast<Length>(values.size()));
        if (values.empty()) return;
        out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    }

  private:
    std::string& out_;
};

class Reader {
  public:
    explicit Reader(std::string_view body) : body_(body) {}

    template <class T>
    void operator()(T& value) {
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
    }
    void operator()(bool& value) {
        std::uint8_t byte = 0;
        (*this)(byte);
        if (byte > 1) fail(str("a flag is neither 0 nor 1: ", int{byte}));
        value = byte == 1;
    }
    template <class Enum>
        requires std::is_enum_v<Enum>
    void operator()(Enum& value, Enum last) {
        (*this)(value);
        if (value > last)
            fail(str("an enum has the value ", static_cast<std::int64_t>(value),
                     ", which is more than ", static_cast<std::int64_t>(last)));
    }
    void operator()(std::string& text, std::size_t most) { text = take(length(most, 1)); }
    template <class T>
    void operator()(std::vector<T>& values, std::size_t most) {
        const std::size_t size = length(most, sizeof(T));
        values.resize(size);
        if (size != 0) std::memcpy(values.data(), take(size * sizeof(T)).data(), size * sizeof(T));
    }
    void end() const {
        if (!body_.empty()) fail("unexpected bytes at the end");
    }

  private:
    std::string_view take(std::size_t size) {
        if (size > body_.size()) fail("the data are truncated");
        const std::string_view taken = body_.substr(0, size);
        body_.remove_prefix(size);
        return taken;
    }
    std::size_t length(std::size_t most, std::size_t element) {
        Length size = 0;
        (*this)(size);
        if (size > most)
            fail(str("a field has the length ", size, ", more than the maximum of ", most));
        if (size > body_.size() / element) fail("the data are truncated");
        return size;
    }

    std::string_view body_;
};

// Computes the size of a body with all fields at their limits.
class Measure {
  public:
    template <class T>
    void operator()(const T& value) {
        size_ += sizeof value;
    }
    template <class T>
        requires std::is_enum_v<T>
    void operator()(T value, T) {
        (*this)(value);
    }
    void operator()(const std::string&, std::size_t most) { size_ += sizeof(Length) + most; }
    template <class T>
    void operator()(const std::vector<T>&, std::size_t most) {
        size_ += sizeof(Length) + most * sizeof(T);
    }
    std::size_t size() const { return size_; }

  private:
    std::size_t size_ = 0;
};

template <class Message>
std::size_t longest() {
    const Message message;
    Measure measure;
    Message::fields(message, measure);
    return measure.size();
}

bool may_send(Sender sender, Kind kind) {
    switch (sender) {
        case Sender::unauthenticated:
            return kind == Kind::join_start || kind == Kind::join_request;
        case Sender::member:
            return kind >= Kind::set && kind <= Kind::heartbeat;
        default:
            return kind == Kind::challenge || kind == Kind::join_reply ||
                   kind == Kind::join_refusal || (kind >= Kind::leave && kind <= kLastKind);
    }
}

}  // namespace

template <class Message>
std::string encode(const Message& message) {
    std::string out(kHeader, '\0');
    Message::fields(message, Writer(out));
    const auto length = static_cast<Length>(out.size() - kHeader);
    std::memcpy(out.data(), &length, sizeof length);
    out[sizeof length] = static_cast<char>(Message::kind);
    return out;
}

template <class Message>
Message decode(std::string_view body) {
    Message message;
    Reader reader(body);
    Message::fields(message, reader);
    reader.end();
    return message;
}

template std::string encode(const JoinStart&);
template JoinStart decode(std::string_view);
template std::string encode(const Challenge&);
template Challenge decode(std::string_view);
template std::string encode(const JoinRequest&);
template JoinRequest decode(std::string_view);
template std::string encode(const JoinReply&);
template JoinReply decode(std::string_view);
template std::string encode(const JoinRefusal&);
template JoinRefusal decode(std::string_view);
template std::string encode(const Set&);
template Set decode(std::string_view);
template std::string encode(const Get&);
template Get decode(std::string_view);
template std::string encode(const Cancel&);
template Cancel decode(std::string_view);
template std::string encode(const Add&);
template Add decode(std::string_view);
template std::string encode(const OpenGroup&);
template OpenGroup decode(std::string_view);
template std::string encode(const AnnounceCall&);
template AnnounceCall decode(std::string_view);
template std::string encode(const CallTimeout&);
template CallTimeout decode(std::string_view);
template std::string encode(const ChildEndReport&);
template ChildEndReport decode(std::string_view);
template std::string encode(const Report&);
template Report decode(std::string_view);
template std::string encode(const MissingRank&);
template MissingRank decode(std::string_view);
template std::string encode(const Leave&);
template Leave decode(std::string_view);
template std::string encode(const Heartbeat&);
template Heartbeat decode(std::string_view);
template std::string encode(const AllJoined&);
template AllJoined decode(std::string_view);
template std::string encode(const StoreReply&);
template StoreReply decode(std::string_view);
template std::string encode(const Value&);
template Value decode(std::string_view);
template std::string encode(const Agreement&);
template Agreement decode(std::string_view);
template std::string encode(const Failure&);
template Failure decode(std::string_view);

std::size_t max_body(Kind kind) {
    switch (kind) {
        case JoinStart::kind:
            return longest<JoinStart>();
        case Challenge::kind:
            return longest<Challenge>();
        case JoinRequest::kind:
            return longest<JoinRequest>();
        case JoinReply::kind:
            return longest<JoinReply>();
        case JoinRefusal::kind:
            return longest<JoinRefusal>();
        case Set::kind:
            return longest<Set>();
        case Get::kind:
            return longest<Get>();
        case Cancel::kind:
            return longest<Cancel>();
        case Add::kind:
            return longest<Add>();
        case OpenGroup::kind:
            return longest<OpenGroup>();
        case AnnounceCall::kind:
            return longest<AnnounceCall>();
        case CallTimeout::kind:
            return longest<CallTimeout>();
        case ChildEndReport::kind:
            return longest<ChildEndReport>();
        case Report::kind:
            return longest<Report>();
        case MissingRank::kind:
            return longest<MissingRank>();
        case Leave::kind:
            return longest<Leave>();
        case Heartbeat::kind:
            return longest<Heartbeat>();
        case AllJoined::kind:
            return longest<AllJoined>();
        case StoreReply::kind:
            return longest<StoreReply>();
        case Value::kind:
            return longest<Value>();
        case Agreement::kind:
            return longest<Agreement>();
        case Failure::kind:
            return longest<Failure>();
    }
    return 0;
}

void FrameReader::add(std::string_view bytes) {
    bytes_.erase(0, begin_);
    begin_ = 0;
    bytes_ += bytes;
}

std::optional<Frame> FrameReader::next(Sender sender) {
    const std::size_t there = bytes_.size() - begin_;
    if (there < kHeader) return {};
    Length length = 0;
    std::memcpy(&length, bytes_.data() + begin_, sizeof length);
    const auto kind = static_cast<Kind>(bytes_[begin_ + sizeof length]);
    if (!may_send(sender, kind)) fail(str("unexpected kind: ", static_cast<int>(kind)));
    if (length > max_body(kind))
        fail(str("the message has ", length, " bytes, more than the maximum of its kind, ",
                 max_body(kind)));
    if (there < kHeader + length) return {};
    const Frame frame{kind, std::string_view(bytes_).substr(begin_ + kHeader, length)};
    begin_ += kHeader + length;
    return frame;
}

std::string at_most(std::string text, std::size_t size) {
    if (text.size() > size) text.resize(size);
    return text;
}

}  // namespace axle::dist
