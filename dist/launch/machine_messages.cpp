#include "dist/launch/machine_messages.h"

#include <type_traits>
#include <utility>

#include "core/text/text.h"
#include "core/tree/tree.h"
#include "dist/transport/launcher_channel.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The maximum length of a text in a message. A line is then shorter than kMaxLauncherLine even if
// every character of its texts is escaped.
constexpr std::size_t kMaxMachineText = kMaxLauncherLine / 32;

class Writer {
  public:
    explicit Writer(Tree& map) : map_(map) {}

    void operator()(const char* name, const std::string& text) const {
        map_.set(name, replace_invalid_utf8(std::string_view(text).substr(0, kMaxMachineText)));
    }
    void operator()(const char* name, bool flag) const { map_.set(name, flag); }
    template <class T>
    void operator()(const char* name, T number) const {
        map_.set(name, static_cast<std::int64_t>(number));
    }

  private:
    Tree& map_;
};

// Reads the fields of a message. is_valid() returns false if a field is missing, has another type,
// or is an integer out of range.
class Reader {
  public:
    explicit Reader(const Tree& map) : map_(map) {}

    bool is_valid() const { return is_valid_; }
    void operator()(const char* name, std::string& text) {
        const Tree* const found = map_.find(name);
        if (check(found != nullptr && found->is_string())) text = found->string();
    }
    void operator()(const char* name, bool& flag) {
        const Tree* const found = map_.find(name);
        if (check(found != nullptr && found->is_boolean())) flag = found->boolean();
    }
    template <class T>
    void operator()(const char* name, T& number) {
        const Tree* const found = map_.find(name);
        if (check(found != nullptr && found->is_integer() && std::in_range<T>(found->integer())))
            number = static_cast<T>(found->integer());
    }

  private:
    bool check(bool condition) {
        is_valid_ = is_valid_ && condition;
        return condition;
    }

    const Tree& map_;
    bool is_valid_ = true;
};

// Reads a message of the type `type`, trying the alternatives of MachineMessage from index I.
template <std::size_t I = 0>
std::optional<MachineMessage> read_as(const Tree& map, const std::string& type) {
    if constexpr (I < std::variant_size_v<MachineMessage>) {
        using Message = std::variant_alternative_t<I, MachineMessage>;
        if (type != Message::type) return read_as<I + 1>(map, type);
        Message message;
        Reader reader(map);
        Message::fields(message, reader);
        if (reader.is_valid()) return message;
    }
    return {};
}

}  // namespace

std::string to_line(const MachineMessage& message) {
    Tree map = Tree::map();
    std::visit(
        [&](const auto& alternative) {
            using Message = std::decay_t<decltype(alternative)>;
            map.set("type", Message::type);
            Message::fields(alternative, Writer(map));
        },
        message);
    return to_json(map, -1) + '\n';
}

std::optional<MachineMessage> read_machine_message(std::string_view line) {
    if (line.size() > kMaxLauncherLine) return {};
    try {
        const Tree map = from_json(line);
        const Tree* const type = map.is_map() ? map.find("type") : nullptr;
        if (type != nullptr && type->is_string()) return read_as(map, type->string());
    } catch (const Error&) {  // the line is not JSON
    }
    return {};
}

}  // namespace axle::dist
