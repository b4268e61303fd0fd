#include "accel/state/state_contents.h"

#include "core/autograd/autograd.h"
#include "core/files/folder.h"
#include "core/ops.h"
#include "core/tree/structure.h"
#include "dist/group/shared_error.h"
#include "kernels/failpoint.h"

namespace axle::accel {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t bytes_of(const Tensor& tensor) {
    return tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

std::int64_t aligned(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void Staging::reserve(std::int64_t bytes, bool pinned) {
    used_ = 0;
    if (memory_.defined() && memory_.numel() >= bytes && memory_.is_pinned() == pinned) return;
    memory_ = Tensor();  // freed before the new memory is allocated
    memory_ = empty({bytes}, {.dtype = u8, .pinned = pinned});
}

Tensor Staging::copy(const Tensor& tensor) {
    const std::int64_t bytes = bytes_of(tensor);
    if (bytes == 0) return tensor.detach().clone();
    auto* const begin = static_cast<std::byte*>(memory_.raw_data()) + used_;
    used_ += aligned(bytes);
    Tensor copied = Tensor::from_blob(begin, tensor.shape(), tensor.dtype());
    copied.copy_(tensor.detach());
    return copied;
}

template <class F>
void StateContents::for_each_whole(F&& f) const {
    for (const auto& [stem, tree] : trees) for_each_tensor(tree, f);
    for (const auto& [stem, named] : tensors)
        for (const auto& [name, tensor] : named) f(tensor);
}

template <class F>
void StateContents::for_each(F&& f) const {
    for_each_whole(f);
    for (const auto& [folder, state] : parts)
        for (const TensorPart& part : state.parts) f(part.values);
}

std::int64_t StateContents::bytes() const {
    std::int64_t bytes = 0;
    for_each([&](const Tensor& tensor) { bytes += aligned(bytes_of(tensor)); });
    return bytes;
}

bool StateContents::has_gpu_tensors() const {
    bool found = false;
    for_each([&](const Tensor& tensor) { found = found || tensor.device().is_cuda(); });
    return found;
}

void StateContents::copy_to(Staging& staging) {
    const NoGrad no_grad;
    staging.reserve(bytes(), has_gpu_tensors());
    const auto copy = [&](const Tensor& tensor) { return staging.copy(tensor); };
    for (auto& [stem, tree] : trees) tree = map_tensors(tree, copy);
    for (auto& [stem, named] : tensors)
        for (auto& [name, tensor] : named) tensor = copy(tensor);
    for (auto& [folder, state] : parts)
        for (TensorPart& part : state.parts) part.values = copy(part.values);
}

void StateContents::write_parts(const std::string& directory, dist::ProcessGroup& group) const {
    for (const auto& [folder, state] : parts) {
        const std::string path = directory + "/" + folder;
        dist::gather_or_throw(group, "save_state", [&]() -> Tree {
            if (group.rank() == 0) create_directories(path);
            return {};
        });
        // Files need no sync here, because the checkpoint's commit() syncs them.
        dist::save_sharded(path, state, group, Durability::none);
    }
}

void StateContents::write(CheckpointWriter& writer) {
    std::int64_t bytes = 0;
    for_each_whole([&](const Tensor& tensor) { bytes += aligned(bytes_of(tensor)); });
    writer.check_space(bytes);
    for (const auto& [stem, named] : tensors)
        save_safetensors(writer.directory() + "/" + stem + ".safetensors", named,
                         {{"format", "pt"}}, Durability::none);
    for (const auto& [stem, tree] : trees) writer.write(stem, tree);
    AXLE_FAILPOINT("save: before the commit");
    writer.commit(std::move(label));
    AXLE_FAILPOINT("save: after the commit");
}

}  // namespace axle::accel
