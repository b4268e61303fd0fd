// Tests `axle generate` with the recorded model in tests/golden/gpt2_tiny.
#include <filesystem>
#include <string>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/models/gpt.h"
#include "tests/tools/axle_launch.h"

namespace axle::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A folder with the recorded GPT-2 and a tokenizer whose token i is the word "w<i>".
class AxleGenerate : public AxleLaunch {
  protected:
    void SetUp() override {
        AxleLaunch::SetUp();
        model_ = folder_ / "model";
        fs::copy(AXLE_TESTS_DIR "/golden/gpt2_tiny", model_);
        Tree words = Tree::map();
        for (int i = 0; i < 61; ++i) words.set("w" + std::to_string(i), i);
        const Tree tokenizer{
            {"version", "1.0"},
            {"truncation", {}},
            {"padding", {}},
            {"added_tokens", Tree::list()},
            {"normalizer", {}},
            {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
            {"post_processor", {}},
            {"decoder", {}},
            {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "w0"}}}};
        write_file_atomically(model_ + "/tokenizer.json", to_json(tokenizer));
    }
    Ended generate(const Arguments& flags) {
        Arguments all = {"generate", model_, "--max-new-tokens", "10"};
        all.insert(all.end(), flags.begin(), flags.end());
        return run(all);
    }
    // Returns the text of the sequence that Transformers generates with these options.
    static std::string recorded(const Tree& options) {
        for (const Tree& entry :
             from_json(read_file(AXLE_TESTS_DIR "/golden/generation.json")).elements()) {
            if (entry["model"].string() != "gpt2_tiny" ||
                to_json(entry["options"]) != to_json(options))
                continue;
            std::string text;
            for (const Tree& id : entry["sequences"][0].elements())
                text += (text.empty() ? "w" : " w") + std::to_string(id.integer());
            return text;
        }
        return "not recorded";
    }
    std::string model_;
};

TEST_F(AxleGenerate, WritesTheTextOfTransformersToStdout) {
    const Ended greedy = generate({"--prompt", "w5 w17 w42", "--temperature", "0"});
    ASSERT_EQ(greedy.code, 0) << greedy.text();
    EXPECT_THAT(greedy.out, ElementsAre(recorded(Tree::map())));
    EXPECT_THAT(greedy.text(), HasSubstr("10 tokens, "));
    const Ended beams = generate({"--prompt", "w5 w17 w42", "--num-beams", "2"});
    EXPECT_THAT(beams.out, ElementsAre(recorded(Tree{{"num_beams", 2}})));
}

TEST_F(AxleGenerate, RepeatsASampleWithTheSameSeed) {
    const Arguments flags = {"--prompt", "w3", "--seed", "4", "--top-p", "0.95"};
    const Ended first = generate(flags);
    ASSERT_EQ(first.code, 0) << first.text();
    EXPECT_EQ(generate(flags).out, first.out);
    EXPECT_NE(generate({"--prompt", "w3", "--seed", "5", "--top-p", "0.95"}).out, first.out);
}

TEST_F(AxleGenerate, EndsAfterAStopText) {
    const std::string whole = recorded(Tree::map());  // "w5 w17 w42 ..."
    const std::string three = whole.substr(0, whole.find(' ', whole.find(' ', 11) + 1));
    const std::string last = three.substr(three.rfind(' '));
    const Ended ended = generate({"--prompt", "w5 w17 w42", "--temperature", "0", "--stop", last});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre(three));
}

TEST_F(AxleGenerate, AppliesAnAdapter) {
    const std::string adapter = AXLE_TESTS_DIR "/golden/peft/gpt2";
    nn::Gpt model = nn::Gpt::from_pretrained(model_);
    nn::load_adapter(model, adapter);
    std::string expected;
    for (const std::int64_t id : model.generate({5, 17, 42}, 10, {.temperature = 0}))
        expected += (expected.empty() ? "w" : " w") + std::to_string(id);
    ASSERT_NE(expected, recorded(Tree::map()));
    const Ended ended =
        generate({"--prompt", "w5 w17 w42", "--temperature", "0", "--adapter", adapter});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre(expected));
}

TEST_F(AxleGenerate, AcceptsTheFileOfTheWeights) {
    const Ended ended = run({"generate", model_ + "/model.safetensors", "--max-new-tokens", "10",
                             "--prompt", "w5 w17 w42", "--temperature", "0"});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre(recorded(Tree::map())));
}

TEST_F(AxleGenerate, WritesTheAnswerToAPromptInAChat) {
    const std::string folder = folder_ / "chat";
    Tree words{{"?", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}, {"user", 3}, {"assistant", 4}};
    for (int i = 5; i < 61; ++i) words.set("w" + std::to_string(i), i);
    Tree added = Tree::list();
    for (const int id : {1, 2})
        added.push_back(Tree{{"id", id},
                             {"content", id == 1 ? "<|im_start|>" : "<|im_end|>"},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}});
    fs::copy(model_, folder);
    const Tree tokenizer{{"version", "1.0"},
                         {"truncation", {}},
                         {"padding", {}},
                         {"added_tokens", added},
                         {"normalizer", {}},
                         {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                         {"post_processor", {}},
                         {"decoder", {}},
                         {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "?"}}}};
    write_file_atomically(folder + "/tokenizer.json", to_json(tokenizer));
    // The ids of "<|im_start|>user\nw9<|im_end|>\n<|im_start|>assistant\n".
    const std::vector<std::int64_t> prompt = {1, 3, 9, 2, 1, 4};
    nn::Gpt model = nn::Gpt::from_pretrained(folder);
    const auto ids = model.generate(prompt, 10, {.temperature = 0, .eos_token_id = {2}});
    std::string expected;
    for (std::size_t i = prompt.size(); i < ids.size() && ids[i] != 2; ++i)
        if (ids[i] != 1)
            expected += (expected.empty() ? "" : " ") +
                        words.entries()[static_cast<std::size_t>(ids[i])].key;
    const Ended ended = run({"generate", folder, "--max-new-tokens", "10", "--prompt", "w9",
                             "--chat", "chatml", "--temperature", "0"});
    ASSERT_EQ(ended.code, 0) << ended.text();
    ASSERT_EQ(ended.out.size(), 1u);
    ASSERT_FALSE(expected.empty());
    EXPECT_THAT(ended.out[0], HasSubstr(expected));
    EXPECT_NE(generate({"--prompt", "w9", "--chat", "alpaca"}).code, 0);
}

// The tokens of this model are bytes, so that several tokens end the answer.
TEST_F(AxleGenerate, LeavesOutTheTextThatEndsAnAnswer) {
    const std::string prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    const std::string answer = "a <|im_ b<|im_end|>\nc";
    nn::Gpt model({.vocab_size = 256, .block_size = 128, .n_layer = 1, .n_head = 1, .n_embd = 256});
    {
        // The blocks add nothing, and the position determines the next byte.
        const NoGrad no_grad;
        nn::GptBlock& block = model.transformer.h[0];
        block.attn.c_proj.weight.fill_(0);
        block.mlp.c_proj.weight.fill_(0);
        model.transformer.wte.weight.copy_(eye(256));
        model.transformer.wpe.weight.fill_(0);
        for (std::size_t i = 0; i < answer.size(); ++i)
            model.transformer.wpe.weight.select(0, static_cast<std::int64_t>(prompt.size() + i) - 1)
                .select(0, static_cast<unsigned char>(answer[i]))
                .fill_(100);
    }
    model.save_pretrained(folder_ / "bytes");
    const auto answers = [&](const Arguments& flags) {
        Arguments all = {"generate", folder_ / "bytes", "--chat", "chatml", "--prompt",
                         "Hi",       "--temperature",   "0"};
        all.insert(all.end(), flags.begin(), flags.end());
        const Ended ended = run(all);
        EXPECT_EQ(ended.code, 0) << ended.text();
        return ended.out;
    };
    EXPECT_THAT(answers({}), ElementsAre("a <|im_ b"));
    EXPECT_THAT(answers({"--max-new-tokens", "13"}), ElementsAre("a <|im_ b<|im"));
    EXPECT_THAT(answers({"--num-beams", "2", "--max-new-tokens", "20"}), ElementsAre("a <|im_ b"));
    EXPECT_THAT(answers({"--stop", "im"}), ElementsAre("a <|im"));
}

TEST_F(AxleGenerate, RejectsInvalidFlagsEmptyPromptsAndUnsupportedModels) {
    const auto rejects = [&](const Arguments& flags, const std::string& words) {
        const Ended ended = generate(flags);
        EXPECT_NE(ended.code, 0);
        EXPECT_THAT(ended.text(), HasSubstr(words));
    };
    rejects({"--prompt", ""}, "--prompt: the text must have at least one token");
    rejects({"--prompt", "w1", "--top-p", "2"}, "--top-p");
    rejects({"--prompt", "w1", "--stop", ""}, "--stop: the text must not be empty");
    rejects({"--prompt", "w1", "--num-beams", "2", "--temperature", "0.5"},
            "generate: temperature");
    rejects({"--prompt", "w1", "--adapter", folder_ / "nothing"}, "adapter_config.json");
    fs::remove(model_ + "/tokenizer.json");
    rejects({"--prompt", "w1"}, "tokenizer.json");
    write_file_atomically(model_ + "/config.json", R"({"model_type": "t5"})");
    rejects({"--prompt", "w1"}, "must be gpt2, llama or mixtral: 't5'");
}

}  // namespace
}  // namespace axle::tests
