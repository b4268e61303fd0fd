// A program that sets Axle's log sink and allocator, and loads and saves an optimizer's state.
#include <cstdlib>

#include <axle/axle.h>
#include <axle/optim/state_file.h>

namespace optim = axle::optim;

namespace {

int messages = 0;
void my_log(int, std::string_view) { ++messages; }

struct Arena {
    int blocks = 0;
} my_arena;
void* my_allocate(std::size_t size, std::size_t alignment, void* arena) {
    ++static_cast<Arena*>(arena)->blocks;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void my_deallocate(void* block, std::size_t, void*) noexcept { std::free(block); }

}  // namespace

int main() {
    // [log]
    axle::set_log_sink(
        [](axle::LogLevel level, std::string_view text) { my_log(int(level), text); });
    // [/log]
    axle::log(axle::LogLevel::warning, "a message");

    // [memory]
    axle::host_memory::set_allocator({my_allocate, my_deallocate, &my_arena});
    axle::host_memory::set_limit(8ll << 30);  // an allocation above the limit throws OutOfMemory
    // [/memory]

    axle::nn::Linear model(4, 1);
    optim::AdamW pytorch(model.parameters());
    model(axle::ones({2, 4})).sum().backward();
    pytorch.step();
    optim::save_state("optimizer.safetensors", pytorch);
    // [optimizer]
    optim::AdamW optimizer(model.parameters(), {.lr = 3e-4});
    optim::load_state("optimizer.safetensors", optimizer);  // a file of PyTorch or Axle
    optim::save_state("optimizer.safetensors", optimizer);  // PyTorch can load it
    // [/optimizer]
    return messages == 1 && my_arena.blocks > 0 ? 0 : 1;
}
