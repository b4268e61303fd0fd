#include "dist/group/shared_error.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/linalg.h"
#include "dist/group/tree_bytes.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

struct ErrorType {
    const char* name;
    bool (*has)(const std::exception&);
    std::exception_ptr (*make)(const std::string& text, const Tree& error);
};

template <class E>
bool is(const std::exception& error) {
    return dynamic_cast<const E*>(&error) != nullptr;
}

template <class E>
constexpr ErrorType type_of(const char* name) {
    return {name, is<E>,
            [](const std::string& text, const Tree&) { return std::make_exception_ptr(E(text)); }};
}

std::exception_ptr out_of_memory(const std::string& text, const Tree& error) {
    const Tree& sizes = error["sizes"];
    return std::make_exception_ptr(OutOfMemory(text, sizes[0].integer(), sizes[1].integer(),
                                               sizes[2].integer(), sizes[3].integer()));
}

constexpr ErrorType kTypes[] = {type_of<ShapeError>("ShapeError"),
                                type_of<DTypeError>("DTypeError"),
                                type_of<DeviceError>("DeviceError"),
                                type_of<IndexError>("IndexError"),
                                type_of<ValueError>("ValueError"),
                                type_of<NumericsError>("NumericsError"),
                                type_of<FileError>("FileError"),
                                type_of<CudaError>("CudaError"),
                                type_of<CommError>("CommError"),
                                type_of<UsageError>("UsageError"),
                                type_of<linalg::LinAlgError>("LinAlgError"),
                                {"OutOfMemory", is<OutOfMemory>, out_of_memory},
                                type_of<Error>("Error")};
constexpr const ErrorType& kError = kTypes[std::size(kTypes) - 1];

const ErrorType& type_for(const auto& fits) {
    const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), fits);
    return found == std::end(kTypes) ? kError : *found;
}

}  // namespace

Tree describe_error(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        Tree described{{"type", type_for([&](const ErrorType& t) { return t.has(e); }).name},
                       {"text", e.what()}};
        if (const auto* memory = dynamic_cast<const OutOfMemory*>(&e))
            described.set("sizes", Tree::list({memory->requested, memory->in_use, memory->cached,
                                               memory->peak}));
        return described;
    } catch (...) {
        return {{"type", kError.name}, {"text", "an exception not derived from std::exception"}};
    }
}

void throw_described(const Tree& error, std::string_view op, std::string_view whose) {
    std::string_view text = error["text"].string();
    const std::string begin = str(op, ": ");
    if (text.starts_with(begin)) text.remove_prefix(begin.size());
    const std::string& name = error["type"].string();
    const ErrorType& type = type_for([&](const ErrorType& t) { return t.name == name; });
    std::rethrow_exception(type.make(str(begin, whose, ": ", text), error));
}

std::vector<Tree> gather_or_throw(ProcessGroup& group, std::string_view op,
                                  const std::function<Tree()>& describe, const std::string& call) {
    Tree own{{"call", call.empty() ? std::string(op) : call}};
    std::exception_ptr error;
    try {
        own.set("value", to_bytes(op, describe()));
    } catch (...) {
        error = std::current_exception();
        own.set("error", describe_error(error));
    }
    std::vector<Tree> all;
    try {
        all = group.all_gather_object(own);
    } catch (const CommError&) {  // the cause may be the error that is described here
        if (error) std::rethrow_exception(error);
        throw;
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank]["call"].string() != all[0]["call"].string())
            throw CommError(str("all ranks must call the same operation: rank 0 calls ",
                                all[0]["call"].string(), ", rank ", rank, " calls ",
                                all[rank]["call"].string()));
    if (error) std::rethrow_exception(error);
    std::vector<Tree> values;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (const Tree* theirs = all[rank].find("error"))
            throw_described(*theirs, op, str("process ", rank));
        values.push_back(from_bytes(all[rank]["value"].string()));
    }
    return values;
}

}  // namespace axle::dist
