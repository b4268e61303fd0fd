#include "nn/models/output.h"

#include <algorithm>
#include <string>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::nn {

std::vector<Tensor> inputs_of(const char* who, const Tree& batch,
                              std::initializer_list<std::string_view> keys) {
    std::vector<Tensor> inputs(keys.size());
    if (batch.is_tensor()) {
        inputs[0] = batch.tensor();
        return inputs;
    }
    const auto list = [&] {
        std::string text;
        for (const std::string_view key : keys) text += (text.empty() ? "" : ", ") + in_quotes(key);
        return text;
    };
    for (const auto& [key, value] : batch.entries()) {
        const auto* const found = std::find(keys.begin(), keys.end(), key);
        if (found == keys.end())
            throw ValueError(str(who, ": outputs: unknown key ", in_quotes(key),
                                 " in the batch; the model reads ", list()));
        if (!value.is_null())
            inputs[static_cast<std::size_t>(found - keys.begin())] = value.tensor();
    }
    if (!inputs[0].defined())
        throw ValueError(str(who, ": outputs: the batch has no ", in_quotes(*keys.begin()),
                             "; the model reads ", list()));
    return inputs;
}

}  // namespace axle::nn
