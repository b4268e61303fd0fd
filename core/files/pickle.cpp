// The interpreter of pickles. A pickle is a program for a stack machine. Its opcodes push values,
// collect the values above a mark into containers, and store values in a memo to push them again.
#include "core/files/pickle.h"

#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle {
namespace {

using Kind = Pickle::Kind;
using Id = std::uint32_t;

// The maximum number of values, which need more memory than their opcodes. Real checkpoints have
// fewer values than this.
constexpr std::size_t kMaxValues = 4'000'000;
constexpr std::string_view kOrderedDict = "collections.OrderedDict";

// The opcodes of the pickle format, with the names of Python's pickletools.
enum Opcode : std::uint8_t {
    kMark = '(',
    kStop = '.',
    kPop = '0',
    kPopMark = '1',
    kDup = '2',
    kBinInt = 'J',
    kBinInt1 = 'K',
    kBinInt2 = 'M',
    kNone = 'N',
    kBinPersId = 'Q',
    kReduce = 'R',
    kBinUnicode = 'X',
    kAppend = 'a',
    kBuild = 'b',
    kGlobal = 'c',
    kAppends = 'e',
    kBinFloat = 'G',
    kBinGet = 'h',
    kLongBinGet = 'j',
    kBinPut = 'q',
    kLongBinPut = 'r',
    kSetItem = 's',
    kTuple = 't',
    kSetItems = 'u',
    kEmptyDict = '}',
    kEmptyList = ']',
    kEmptyTuple = ')',
    kProto = 0x80,
    kTuple1 = 0x85,
    kTuple2 = 0x86,
    kTuple3 = 0x87,
    kNewTrue = 0x88,
    kNewFalse = 0x89,
    kLong1 = 0x8a,
    kShortBinUnicode = 0x8c,
    kBinUnicode8 = 0x8d,
    kStackGlobal = 0x93,
    kMemoize = 0x94,
    kFrame = 0x95,
};

class Machine {
  public:
    Machine(std::span<const std::byte> bytes, const std::function<bool(std::string_view)>& allowed)
        : bytes_(bytes), allowed_(allowed) {}

    Pickle run() {
        while (step()) {
        }
        if (stack_.size() != 1 || !marks_.empty())
            fail("the pickle does not end with exactly one value");
        result_.root = stack_[0];
        return std::move(result_);
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const {
        throw FileError(str("pickle: byte ", opcode_at_, ": ", reason));
    }

    // --- input
    std::span<const std::byte> take(std::uint64_t length) {
        if (length > bytes_.size() - at_) fail("unexpected end");
        const auto taken = bytes_.subspan(at_, length);
        at_ += length;
        return taken;
    }
    std::uint64_t number(int length) {
        std::uint64_t value = 0;
        int shift = 0;
        for (const std::byte byte : take(static_cast<std::uint64_t>(length)))
            value |= std::to_integer<std::uint64_t>(byte) << std::exchange(shift, shift + 8);
        return value;
    }
    std::string_view text(std::uint64_t length) {
        const auto taken = take(length);
        return {reinterpret_cast<const char*>(taken.data()), taken.size()};
    }
    std::string_view line() {
        const std::string_view rest = std::as_const(*this).rest();
        const std::size_t end = rest.find('\n');
        if (end == std::string_view::npos) fail("unexpected end");
        return text(end + 1).substr(0, end);
    }
    std::string_view rest() const {
        const auto left = bytes_.subspan(at_);
        return {reinterpret_cast<const char*>(left.data()), left.size()};
    }
    std::int64_t long_integer() {
        const auto length = static_cast<int>(number(1));
        if (length > 8) fail("an integer exceeds 64 bits");
        if (length == 0) return 0;
        const int unused = 64 - 8 * length;  // makes the highest given bit the sign
        return static_cast<std::int64_t>(number(length) << unused) >> unused;
    }
    double big_endian_double() {
        std::uint64_t bits = 0;
        for (const std::byte byte : take(8))
            bits = bits << 8 | std::to_integer<std::uint64_t>(byte);
        return std::bit_cast<double>(bits);
    }

    // --- the stack
    void push(Pickle::Value value) {
        if (result_.values.size() == kMaxValues)
            fail(str("the pickle has more than ", kMaxValues, " values"));
        result_.values.push_back(std::move(value));
        stack_.push_back(static_cast<Id>(result_.values.size() - 1));
    }
    void push_kind(Kind kind, std::vector<Id> items = {}) {
        push({.kind = kind, .items = std::move(items)});
    }
    void push_integer(std::int64_t value) { push({.kind = Kind::integer, .integer = value}); }
    void push_text(std::string_view value) {
        push({.kind = Kind::text, .text = std::string(value)});
    }
    // Returns the stack index of the first value after the last mark.
    std::size_t frame_begin() const { return marks_.empty() ? 0 : marks_.back(); }
    void check_depth(std::size_t count) const {
        if (stack_.size() - frame_begin() < count) fail("too few values on the stack");
    }
    Id pop() {
        check_depth(1);
        const Id top = stack_.back();
        stack_.pop_back();
        return top;
    }
    std::vector<Id> pop_many(std::size_t count) {
        check_depth(count);
        const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
        std::vector<Id> taken(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        return taken;
    }
    std::vector<Id> pop_to_mark() {
        if (marks_.empty()) fail("the stack has no mark");
        std::vector<Id> taken = pop_many(stack_.size() - marks_.back());
        marks_.pop_back();
        return taken;
    }
    Pickle::Value& top(Kind kind, const char* what) {
        check_depth(1);
        Pickle::Value& value = result_.values[stack_.back()];
        if (value.kind != kind) fail(what);
        return value;
    }

    // --- operations
    void add_items(Kind kind, const std::vector<Id>& items) {
        const bool is_dict = kind == Kind::dict;
        if (is_dict && items.size() % 2 != 0) fail("a dict has a key without a value");
        auto& into = top(kind, is_dict ? "setting items of a value that is not a dict"
                                       : "appending to a value that is not a list")
                         .items;
        into.insert(into.end(), items.begin(), items.end());
    }
    void push_name(std::string_view module, std::string_view name) {
        std::string full_name = str(module, '.', name);
        if (full_name != kOrderedDict && !allowed_(full_name))
            throw FileError(str("contains ", printable(full_name),
                                ", which is neither a tensor nor a plain container"));
        push({.kind = Kind::name, .text = std::move(full_name)});
    }
    void push_named_on_stack() {
        const std::vector<Id> parts = pop_many(2);
        const auto &module = result_.values[parts[0]], &name = result_.values[parts[1]];
        if (module.kind != Kind::text || name.kind != Kind::text)
            fail("the name of a global is not a string");
        push_name(std::string(module.text), std::string(name.text));
    }
    void reduce() {
        std::vector<Id> call = pop_many(2);
        const auto &function = result_.values[call[0]], &arguments = result_.values[call[1]];
        if (function.kind != Kind::name || arguments.kind != Kind::tuple)
            fail("a value that is not a global name is called");
        if (function.text != kOrderedDict) return push_kind(Kind::call, std::move(call));
        if (!arguments.items.empty()) fail("an OrderedDict has constructor arguments");
        push_kind(Kind::dict);
    }
    void drop_state() {
        static_cast<void>(pop());
        check_depth(1);
        if (const Kind kind = result_.values[stack_.back()].kind;
            kind != Kind::dict && kind != Kind::call)
            fail("a value that is not a dict has state");
    }
    void memoize(std::uint64_t index) {
        check_depth(1);
        memo_[index] = stack_.back();
        if (memo_.size() > kMaxValues) fail(str("the memo has more than ", kMaxValues, " values"));
    }
    void recall(std::uint64_t index) {
        const auto found = memo_.find(index);
        if (found == memo_.end()) fail("a value is not in the memo");
        stack_.push_back(found->second);
    }
    bool step();

    std::span<const std::byte> bytes_;
    const std::function<bool(std::string_view)>& allowed_;
    std::size_t at_ = 0, opcode_at_ = 0;
    Pickle result_;
    std::vector<Id> stack_;
    std::vector<std::size_t> marks_;  // stack sizes at the marks
    std::unordered_map<std::uint64_t, Id> memo_;
};

// Executes one opcode. Returns false if it was the last one.
bool Machine::step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<std::uint8_t>(number(1));
    switch (opcode) {
        case kProto:
            if (const auto protocol = number(1); protocol < 2 || protocol > 5)
                fail(str("the protocol must be from 2 to 5: ", protocol));
            return true;
        case kFrame:
            return static_cast<void>(take(8)), true;
        case kStop:
            return false;
        case kMark:
            return marks_.push_back(stack_.size()), true;
        case kPop:
            return static_cast<void>(pop()), true;
        case kPopMark:
            return static_cast<void>(pop_to_mark()), true;
        case kDup:
            return check_depth(1), stack_.push_back(stack_.back()), true;
        case kNone:
            return push_kind(Kind::none), true;
        case kNewTrue:
        case kNewFalse:
            return push({.kind = Kind::flag, .integer = opcode == kNewTrue ? 1 : 0}), true;
        case kBinInt:
            return push_integer(static_cast<std::int32_t>(number(4))), true;
        case kBinInt1:
            return push_integer(static_cast<std::int64_t>(number(1))), true;
        case kBinInt2:
            return push_integer(static_cast<std::int64_t>(number(2))), true;
        case kLong1:
            return push_integer(long_integer()), true;
        case kBinFloat:
            return push({.kind = Kind::number, .number = big_endian_double()}), true;
        case kShortBinUnicode:
            return push_text(text(number(1))), true;
        case kBinUnicode:
            return push_text(text(number(4))), true;
        case kBinUnicode8:
            return push_text(text(number(8))), true;
        case kEmptyTuple:
            return push_kind(Kind::tuple), true;
        case kTuple1:
        case kTuple2:
        case kTuple3:
            return push_kind(Kind::tuple, pop_many(opcode - kTuple1 + 1u)), true;
        case kTuple:
            return push_kind(Kind::tuple, pop_to_mark()), true;
        case kEmptyList:
            return push_kind(Kind::list), true;
        case kEmptyDict:
            return push_kind(Kind::dict), true;
        case kAppend:
            return add_items(Kind::list, pop_many(1)), true;
        case kAppends:
            return add_items(Kind::list, pop_to_mark()), true;
        case kSetItem:
            return add_items(Kind::dict, pop_many(2)), true;
        case kSetItems:
            return add_items(Kind::dict, pop_to_mark()), true;
        case kBinPut:
            return memoize(number(1)), true;
        case kLongBinPut:
            return memoize(number(4)), true;
        case kMemoize:
            return memoize(memo_.size()), true;
        case kBinGet:
            return recall(number(1)), true;
        case kLongBinGet:
            return recall(number(4)), true;
        case kGlobal: {
            const std::string_view module = line();
            return push_name(module, line()), true;
        }
        case kStackGlobal:
            return push_named_on_stack(), true;
        case kReduce:
            return reduce(), true;
        case kBuild:  // sets attributes, which are ignored
            return drop_state(), true;
        case kBinPersId:
            return push_kind(Kind::reference, pop_many(1)), true;
        default:
            fail(str("opcode ", int{opcode}, " is not supported"));
    }
}

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes,
                   const std::function<bool(std::string_view)>& allowed) {
    return Machine(bytes, allowed).run();
}

}  // namespace axle
