#include "tools/axle/bench/jobs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::bench {
namespace {

const std::string& text_of(const std::string& value) { return value; }
std::string text_of(DType value) { return short_name(value); }

// Returns the given values of an option that the kernel supports, or the kernel's first known value
// if no value is given. If the user named the kernel, throws UsageError for other given values.
template <class T>
std::vector<T> supported(const Kernel& kernel, bool named, const char* what,
                         const std::vector<T>& given, const std::vector<T>& known,
                         const std::string& known_text) {
    if (given.empty()) return {known.front()};
    std::vector<T> values;
    for (const T& value : given) {
        if (std::ranges::count(known, value) > 0)
            values.push_back(value);
        else if (named)
            throw UsageError(str(kernel.name, ": the ", what, " must be one of ", known_text, ": ",
                                 in_quotes(text_of(value))));
    }
    return values;
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

std::vector<std::string> names_of(const std::vector<DType>& dtypes) {
    std::vector<std::string> names;
    for (const DType dtype : dtypes) names.push_back(short_name(dtype));
    return names;
}

std::vector<Job> jobs_of(const Settings& settings) {
    std::vector<std::pair<const Kernel*, std::vector<Sizes>>> kernels;
    for (const std::string& text : settings.kernels) {
        const std::size_t colon = text.find(':');
        const Kernel& kernel = kernel_named(text.substr(0, colon));
        const bool has_shape = colon != std::string::npos;
        kernels.emplace_back(
            &kernel, has_shape ? std::vector<Sizes>{parse_shape(kernel, text.substr(colon + 1))}
                               : kernel.shapes);
    }
    const bool named = !kernels.empty();
    if (!named)
        for (const Kernel& kernel : kernels_of_bench())
            kernels.emplace_back(&kernel, kernel.shapes);
    std::vector<DType> dtypes;
    for (const std::string& name : settings.dtypes) dtypes.push_back(dtype_named(name));
    std::vector<Job> jobs;
    for (const auto& [kernel, shapes] : kernels)
        for (const Sizes& shape : shapes)
            for (const DType dtype : supported(*kernel, named, "dtype", dtypes, kernel->dtypes,
                                               joined(names_of(kernel->dtypes))))
                for (const std::string& layout :
                     supported(*kernel, named, "layout", settings.layouts, kernel->layouts,
                               joined(kernel->layouts)))
                    jobs.push_back({kernel, {shape, dtype, layout}});
    if (jobs.empty())
        throw UsageError(
            str("bench: no selected kernel supports these dtypes and layouts: the dtypes are ",
                in_quotes(joined(settings.dtypes)), ", the layouts are ",
                in_quotes(joined(settings.layouts))));
    return jobs;
}

}  // namespace axle::bench
