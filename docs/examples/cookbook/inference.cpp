// Loads a language model and computes predictions. The program writes the model's folder itself.
#include <iostream>

#include <axle/axle.h>

using axle::Tensor;

int main() {
    axle::manual_seed(1);
    axle::nn::Gpt({.vocab_size = 100,
                   .block_size = 32,
                   .n_layer = 2,
                   .n_head = 2,
                   .n_embd = 64,
                   .dropout = 0.1})
        .save_pretrained("model");

    // [load]
    axle::kernels::set_num_threads(1);  // for example one thread for each request
    auto model = axle::nn::Gpt::from_pretrained("model");  // in evaluation mode
    // [/load]

    // [predict]
    const axle::NoGrad no_grad;  // for this thread, until the end of the block
    const Tensor ids = axle::tensor(std::vector<std::int64_t>{5, 17, 42, 5, 99, 3}, {2, 3});
    const Tensor logits = model(ids);  // [2, 3, 100]
    const Tensor probabilities = softmax(logits.select(1, 2), -1);
    const auto [best, tokens] = topk(probabilities, 3);
    std::cout << "next tokens: " << tokens << "\nprobabilities: " << best << '\n';
    // [/predict]

    // [generate]
    const auto text = model.generate({5, 17, 42}, 8, {.temperature = 0});
    // [/generate]
    const bool is_most_likely = text.size() == 11 && text[3] == tokens[0][0].item_int();
    const bool is_repeatable = (model(ids) - logits).abs().max().item() == 0;
    const bool has_no_graph = axle::autograd::live_nodes() == 0 && !logits.requires_grad();

    // [half]
    model.to(axle::bf16);  // half the memory; faster with AVX-512 BF16
    const Tensor rounded = model(ids).to(axle::f32);
    // [/half]
    const bool is_close = (rounded - logits).abs().max().item() < 0.1;
    return is_most_likely && is_repeatable && has_no_graph && is_close ? 0 : 1;
}
