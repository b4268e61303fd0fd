// Trains a GPT whose layers are divided over two processes, and draws schedules.
#include <filesystem>
#include <fstream>
#include <string>

#include <axle/accel/megatron/megatron_engine.h>
#include <axle/accel/prepare/deepspeed_objects.h>
#include <axle/axle.h>
#include <axle/dist/pipeline/drawing.h>
#include <axle/dist/pipeline/pipeline.h>

using axle::Tensor;

namespace {

axle::nn::Gpt make_gpt() {
    axle::manual_seed(1);
    return axle::nn::Gpt(
        {.vocab_size = 64, .block_size = 16, .n_layer = 4, .n_head = 2, .n_embd = 32});
}

axle::data::TensorDataset texts() {
    const Tensor ids = axle::randint(0, 64, {64, 17});
    return axle::data::TensorDataset({{"input_ids", ids.narrow(1, 0, 16).contiguous()},
                                      {"labels", ids.narrow(1, 1, 16).contiguous()}});
}

void train(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 16, .shuffle = true});
    // [train]
    axle::Accelerator accelerator({.megatron_lm_plugin = {{
                                       .pp_degree = 2,
                                       .num_micro_batches = 4,
                                       .schedule = "zero_bubble",
                                   }}});
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    for (auto& batch : loader) {
        Tensor loss = accelerator.pipeline_step(model, batch);  // forward and backward
        optimizer.step();
        optimizer.zero_grad();
        accelerator.print("loss ", loss.item());
    }
    accelerator.save_state("checkpoint");
    // [/train]
}

void train_with_engine(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 16, .shuffle = true});
    axle::data::DataLoader tests(data, {.batch_size = 16});
    // [engine]
    axle::Accelerator accelerator({.megatron_lm_plugin = {{
                                       .pp_degree = 2,
                                       .num_micro_batches = 4,
                                       .train_iters = 8,
                                       .lr_decay_style = "cosine",
                                       .lr_warmup_iters = 2,
                                       .tensorboard_dir = "logs",
                                       .eval_iters = 1,
                                       .eval_interval = 2,
                                   }}});
    axle::accel::MegatronLMDummyScheduler schedule;
    accelerator.prepare(gpt, adamw, batches, tests, schedule);
    axle::accel::MegatronEngine engine(accelerator, gpt);
    for (auto& batch : batches) {
        Tensor loss = engine.train_step(batch).loss;
        if (engine.is_evaluation_due()) accelerator.print("test loss ", engine.evaluate(tests));
    }
    // [/engine]
}

// A user-defined model, which train_pieces() describes as a list of pieces.
struct Net : axle::nn::Model<Net> {
    axle::nn::Linear in{8, 32}, hidden{32, 32}, out{32, 4};
    void visit(axle::nn::Visitor& v) override { v("in", in), v("hidden", hidden), v("out", out); }
    Tensor forward(const Tensor& x) { return out(relu(hidden(relu(in(x))))); }
};

void train_pieces(const std::string&) {
    axle::manual_seed(2);
    Net net;
    const Tensor x = axle::randn({8, 8}), y = axle::randint(0, 4, {8});
    // [pieces]
    std::vector<axle::nn::Piece> pieces = {
        {.name = "in",
         .modules = {&net.in},
         .forward = [&](const Tensor&,
                        const axle::Tree& batch) { return relu(net.in(batch["x"])); }},
        {.name = "hidden",
         .modules = {&net.hidden},
         .forward = [&](const Tensor& h, const axle::Tree&) { return relu(net.hidden(h)); }},
        {.name = "out",
         .modules = {&net.out},
         .forward = [&](const Tensor& h, const axle::Tree&) { return net.out(h); }},
    };
    auto group = axle::dist::ProcessGroup::create();
    axle::dist::Pipeline pipeline(net, pieces, group, {.micro_batches = 4, .stage_sizes = {1, 2}});
    Tensor loss =
        pipeline.step({{"x", x}, {"y", y}}, [](const Tensor& logits, const axle::Tree& batch) {
            return axle::cross_entropy(logits, batch["y"]);
        });
    // [/pieces]
    if (!(loss.item() > 0)) std::exit(1);
}

}  // namespace

int main() {
    axle::dist::launch({.num_processes = 2}, train, "");
    axle::dist::launch({.num_processes = 2}, train_with_engine, "");
    axle::dist::launch({.num_processes = 2}, train_pieces, "");
    // [draw]
    using axle::dist::ScheduleKind;
    std::ofstream("parallelism_schedules.svg") << axle::dist::draw_schedules({
        axle::dist::make_schedule(ScheduleKind::gpipe, 4, 8),
        axle::dist::make_schedule(ScheduleKind::one_forward_one_backward, 4, 8),
        axle::dist::make_schedule(ScheduleKind::interleaved, 4, 8, 2),
        axle::dist::make_schedule(ScheduleKind::zero_bubble, 4, 8),
    });
    // [/draw]
    return std::filesystem::exists("checkpoint/model.safetensors") ? 0 : 1;
}
