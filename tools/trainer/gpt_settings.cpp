#include "tools/trainer/gpt_settings.h"

#include <filesystem>
#include <utility>

#include "kernels/error.h"
#include "tools/trainer/command_line.h"

namespace axle::trainer {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kPresets = {"shakespeare-char-cpu", "shakespeare-char-best",
                                           "quickstart", "gpt2", "tiny"};

GptSettings preset_of(const std::string& name) {
    GptSettings s;
    s.preset = name, s.out = "runs/gpt";
    // nanoGPT's settings for training on a CPU.
    s.batch_size = 12, s.steps = 2000, s.lr = 1e-3, s.weight_decay = 0.1;
    s.eval_every = 250, s.save_every = 500;
    s.model = {.block_size = 64,
               .n_layer = 4,
               .n_head = 4,
               .n_embd = 128,
               .bias = false,
               .activation = Gelu::erf};
    if (name == "shakespeare-char-cpu") return s;
    if (name == "shakespeare-char-best") {  // needs fewer steps for the same loss
        s.steps = 1150, s.warmup = 20, s.lr = 1e-2, s.muon_lr = 1e-2;
        return s;
    }
    if (name == "quickstart") {
        s.text.tokenizer = "byte";
        s.steps = 1000, s.eval_every = 200;
        return s;
    }
    if (name == "gpt2") {
        s.model = {};
        s.batch_size = 4, s.lr = 6e-4, s.min_lr = 6e-5, s.beta2 = 0.95;
        return s;
    }
    if (name == "tiny") {
        s.model.block_size = 16, s.model.n_layer = 1, s.model.n_head = 2, s.model.n_embd = 16;
        s.text.tokenizer = "byte";
        s.batch_size = 4, s.steps = 20, s.warmup = 2, s.eval_every = 10, s.save_every = 10;
        return s;
    }
    throw_unknown("preset", name, kPresets);
}

}  // namespace

std::optional<GptSettings> parse_gpt_settings(std::vector<std::string> arguments) {
    CommandLine line(
        "Trains a GPT-2 or Llama on a text, answers or chats, generates text, and saves the model "
        "as Hugging Face does.\n\n"
        "  train_gpt --data shakespeare.txt --out runs/a            train\n"
        "  train_gpt --data shakespeare.txt --out runs/a --resume latest   resume\n"
        "  train_gpt --data shakespeare.txt --out runs/a --eval-only --sample 500\n"
        "  train_gpt --data shards/ --tokenizer tokenizer/ --out runs/a    train on tokens\n"
        "  train_gpt --data tokens.bin --init-from gpt2/ --preset gpt2     fine-tune\n"
        "  train_gpt --data chats.jsonl --init-from llama/ --chat llama3 --packing best-fit "
        "--lora-r 8 --quantize nf4 --lr 2e-4 --epochs 3 --out runs/b\n",
        std::move(arguments));
    GptSettings s = preset_of(line.peek("preset").value_or(kPresets[0]));
    line.add("data", s.data,
             "Text file, tokens as nanoGPT's .bin or a folder of them, or JSON lines (.jsonl or "
             ".json) with the column messages, the columns prompt and completion, or a column of "
             "texts",
             true);
    line.add("preset", s.preset,
             "Defaults: shakespeare-char-cpu, shakespeare-char-best, quickstart, gpt2 or tiny");
    s.add_to(line);
    line.add("init-from", s.init_from,
             "Start from a Hugging Face folder or .safetensors of a GPT-2 or Llama");
    line.add("tokenizer", s.text.tokenizer,
             "Without --init-from: char, byte or a folder with a tokenizer.json");
    s.text.add_to(line);
    s.lora.add_to(line);
    s.has_block = line.peek("block-size").has_value();
    line.add("block-size", s.model.block_size,
             "Tokens in a sequence; with --init-from, the default is the largest of the model, at "
             "most 1024",
             1);
    line.add("min-lr", s.min_lr, "Learning rate at the end of the cosine");
    line.add("muon-lr", s.muon_lr,
             "Train the weights of the layers with Muon at this learning rate, and the other "
             "parameters with AdamW; 0: AdamW trains all parameters");
    line.add("warmup", s.warmup, "Updates of linear warmup");
    line.add("dropout", s.model.dropout, "Probability", 0, 0.99);
    line.add("sample", s.sample, "Tokens to write at the end; for JSON lines, of an answer");
    if (!line.parse()) return std::nullopt;
    if (s.text.tokenizer != "char" && s.text.tokenizer != "byte" &&
        !fs::exists(fs::path(s.text.tokenizer) / "tokenizer.json"))
        throw_unknown("tokenizer", s.text.tokenizer,
                      {"char", "byte", "a folder with a tokenizer.json"});
    s.lora.check();
    if (s.lora.is_used() && s.init_from.empty())
        throw UsageError("--lora-r needs --init-from, a model to adapt");
    s.values = line.values();
    return s;
}

}  // namespace axle::trainer
