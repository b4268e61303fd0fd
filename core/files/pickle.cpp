// The interpreter of pickles. A pickle is a program for a stack machine. Its opcodes push values,
// collect the values above a mark into containers, and store values in a memo to push them again.
#include "core/files/pickle.h"

#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;
using Id = Pickle::Id;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::size_t kMaxName = 1000;        // bytes of "module.name"
constexpr std::size_t kTableEntryBytes = 64;  // memory of an entry of a hash map

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
    kNewObj = 0x81,
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

}  // namespace

class PickleMachine {
  public:
    PickleMachine(std::span<const std::byte> bytes, MemoryBudget& budget,
                  const std::function<bool(std::string_view)>& allowed)
        : bytes_(bytes), budget_(budget), allowed_(allowed) {
        result_.bytes_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    Pickle run() {
        while (step()) {
        }
        if (stack_.size() != 1 || !marks_.empty())
            fail("the pickle does not end with exactly one value");
        result_.root_ = stack_[0];
        return std::move(result_);
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const {
        throw FileError(str("pickle: byte ", opcode_at_, ": ", reason));
    }

    // --- input
    std::span<const std::byte> take(std::uint64_t length) {
        if (length > bytes_.size() - at_) fail("unexpected end of the pickle");
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
        if (end == std::string_view::npos) fail("unexpected end of the pickle");
        return text(end + 1).substr(0, end);
    }
    std::string_view rest() const { return result_.bytes_.substr(at_); }
    std::int64_t long_integer() {
        const auto length = static_cast<int>(number(1));
        if (length > 8) fail("an integer exceeds 64 bits");
        if (length == 0) return 0;
        const int unused = 64 - 8 * length;  // makes the highest given bit the sign
        return static_cast<std::int64_t>(number(length) << unused) >> unused;
    }
    std::uint64_t big_endian_bits() {
        std::uint64_t bits = 0;
        for (const std::byte byte : take(8))
            bits = bits << 8 | std::to_integer<std::uint64_t>(byte);
        return bits;
    }

    // --- the stack
    const Value& value(Id id) const { return result_.values_[id]; }
    void push_id(Id id) { budget_.append(stack_, id); }
    void push(Value value) {
        budget_.charge(sizeof(Value));
        result_.values_.push_back(value);
        push_id(static_cast<Id>(result_.values_.size() - 1));
    }
    void push_items(Kind kind, std::span<const Id> items) {
        const std::size_t begin = result_.items_.size();
        budget_.append(result_.items_, items);
        push({.kind = kind, .size = static_cast<std::uint32_t>(items.size()), .bits = begin});
    }
    void push_container(Kind kind, std::span<const Id> items = {}) {
        const std::size_t index = result_.containers_.size();
        budget_.append(result_.containers_, std::vector<Id>());
        budget_.append(result_.containers_.back(), items);
        push({.kind = kind, .bits = index});
    }
    void push_integer(std::int64_t value) {
        push({.kind = Kind::integer, .bits = static_cast<std::uint64_t>(value)});
    }
    void push_text(std::string_view value) {
        const auto begin = static_cast<std::uint64_t>(value.data() - result_.bytes_.data());
        push({.kind = Kind::text, .size = static_cast<std::uint32_t>(value.size()), .bits = begin});
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
    // Removes the top `count` values. The result is valid until the next call.
    std::span<const Id> pop_many(std::size_t count) {
        check_depth(count);
        taken_.clear();
        budget_.append(taken_, std::span<const Id>(stack_).last(count));
        stack_.resize(stack_.size() - count);
        return taken_;
    }
    std::span<const Id> pop_to_mark() {
        if (marks_.empty()) fail("the stack has no mark");
        const auto taken = pop_many(stack_.size() - marks_.back());
        marks_.pop_back();
        return taken;
    }

    // --- operations
    void add_items(Kind kind, std::span<const Id> items) {
        const bool is_dict = kind == Kind::dict;
        if (is_dict && items.size() % 2 != 0) fail("a dict has a key without a value");
        check_depth(1);
        const Value& top = value(stack_.back());
        if (top.kind != kind)
            fail(is_dict ? "items are set on a value that is not a dict"
                         : "items are appended to a value that is not a list");
        budget_.append(result_.containers_[top.bits], items);
    }
    void push_name(std::string_view module, std::string_view name) {
        if (module.size() + name.size() > kMaxName)
            fail(str("the name of a global has more than ", kMaxName, " bytes"));
        std::string full_name = str(module, '.', name);
        const auto [known, is_new] = names_.try_emplace(full_name, result_.names_.size());
        if (is_new) {
            if (full_name != kOrderedDict && !allowed_(full_name))
                throw FileError(str("contains ", printable(full_name),
                                    ", which is not supported in this file"));
            budget_.charge(kTableEntryBytes + full_name.size());
            budget_.append(result_.names_, std::move(full_name));
        }
        push({.kind = Kind::name, .bits = known->second});
    }
    void push_named_on_stack() {
        const auto parts = pop_many(2);
        const Value &module = value(parts[0]), &name = value(parts[1]);
        if (module.kind != Kind::text || name.kind != Kind::text)
            fail("the name of a global is not a string");
        push_name(result_.text(module), result_.text(name));
    }
    void reduce() {
        const auto call = pop_many(2);
        const Value &function = value(call[0]), &arguments = value(call[1]);
        if (function.kind != Kind::name || arguments.kind != Kind::tuple)
            fail("a call needs the name of a global and a tuple of arguments");
        if (result_.text(function) != kOrderedDict) return push_items(Kind::call, call);
        if (arguments.size != 0) fail("an OrderedDict has constructor arguments");
        push_container(Kind::dict);
    }
    void push_object() {
        const auto items = pop_many(2);
        if (value(items[0]).kind != Kind::name || value(items[1]).kind != Kind::tuple)
            fail("a new object needs the name of a class and a tuple of arguments");
        push_container(Kind::object, items);
    }
    void set_state() {
        const Id state = pop();
        check_depth(1);
        const Value& top = value(stack_.back());
        if (top.kind == Kind::object)
            budget_.append(result_.containers_[top.bits], state);
        else if (top.kind != Kind::dict && top.kind != Kind::call)
            fail("a value that is neither a dict nor an object has state");
    }
    // Python numbers the entries of the memo from 0, so they are stored in a vector. Entries with
    // other numbers are stored in a map.
    void memoize(std::uint64_t index) {
        check_depth(1);
        const Id top = stack_.back();
        if (index < memo_.size()) {
            memo_[index] = top;
        } else if (index == memo_.size()) {
            budget_.append(memo_, top);
            sparse_memo_.erase(index);
        } else {
            budget_.charge(kTableEntryBytes);
            sparse_memo_[index] = top;
        }
    }
    void recall(std::uint64_t index) {
        if (index < memo_.size()) return push_id(memo_[index]);
        const auto found = sparse_memo_.find(index);
        if (found == sparse_memo_.end()) fail(str("a value is not in the memo: number ", index));
        push_id(found->second);
    }
    bool step();

    std::span<const std::byte> bytes_;
    MemoryBudget& budget_;
    const std::function<bool(std::string_view)>& allowed_;
    std::size_t at_ = 0, opcode_at_ = 0;
    Pickle result_;
    std::vector<Id> stack_, taken_;
    std::vector<std::size_t> marks_;  // stack sizes at the marks
    std::vector<Id> memo_;
    std::unordered_map<std::uint64_t, Id> sparse_memo_;
    std::unordered_map<std::string, std::size_t> names_;  // indices of Pickle::names_
};

// Executes one opcode. Returns false if it was the last opcode.
bool PickleMachine::step() {
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
            return budget_.append(marks_, stack_.size()), true;
        case kPop:
            return static_cast<void>(pop()), true;
        case kPopMark:
            return static_cast<void>(pop_to_mark()), true;
        case kDup:
            return check_depth(1), push_id(stack_.back()), true;
        case kNone:
            return push({.kind = Kind::none}), true;
        case kNewTrue:
        case kNewFalse:
            return push({.kind = Kind::flag, .bits = opcode == kNewTrue ? 1u : 0u}), true;
        case kBinInt:
            return push_integer(static_cast<std::int32_t>(number(4))), true;
        case kBinInt1:
            return push_integer(static_cast<std::int64_t>(number(1))), true;
        case kBinInt2:
            return push_integer(static_cast<std::int64_t>(number(2))), true;
        case kLong1:
            return push_integer(long_integer()), true;
        case kBinFloat:
            return push({.kind = Kind::number, .bits = big_endian_bits()}), true;
        case kShortBinUnicode:
            return push_text(text(number(1))), true;
        case kBinUnicode:
            return push_text(text(number(4))), true;
        case kBinUnicode8:
            return push_text(text(number(8))), true;
        case kEmptyTuple:
            return push_items(Kind::tuple, {}), true;
        case kTuple1:
        case kTuple2:
        case kTuple3:
            return push_items(Kind::tuple, pop_many(opcode - kTuple1 + 1u)), true;
        case kTuple:
            return push_items(Kind::tuple, pop_to_mark()), true;
        case kEmptyList:
            return push_container(Kind::list), true;
        case kEmptyDict:
            return push_container(Kind::dict), true;
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
            return memoize(memo_.size() + sparse_memo_.size()), true;
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
        case kNewObj:
            return push_object(), true;
        case kBuild:
            return set_state(), true;
        case kBinPersId:
            return push_items(Kind::reference, pop_many(1)), true;
        default:
            fail(str("opcode ", int{opcode}, " is not supported"));
    }
}

void MemoryBudget::charge(std::size_t bytes) {
    if (bytes > left_)
        throw FileError(str("the values need more memory than ", total_,
                            " bytes, the limit for a file of this size"));
    left_ -= bytes;
}

std::string_view Pickle::text(const Value& value) const {
    return value.kind == Kind::name ? std::string_view(names_[value.bits])
                                    : bytes_.substr(value.bits, value.size);
}

std::span<const Pickle::Id> Pickle::items(const Value& value) const {
    if (value.kind == Kind::list || value.kind == Kind::dict || value.kind == Kind::object)
        return containers_[value.bits];
    if (value.size == 0) return {};
    return std::span(items_).subspan(value.bits, value.size);
}

Pickle read_pickle(std::span<const std::byte> bytes, MemoryBudget& budget,
                   const std::function<bool(std::string_view)>& allowed) {
    if (bytes.size() > kMaxPickle)
        throw FileError(
            str("the pickle has ", bytes.size(), " bytes, more than the maximum of ", kMaxPickle));
    return PickleMachine(bytes, budget, allowed).run();
}

}  // namespace axle
